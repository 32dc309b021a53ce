// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/job_report.h"

#include <map>

#include <nlohmann/json.hpp>

#include "launcher/failures/rank_exit_text.h"
#include "launcher/plan/plan.h"
#include "launcher/report/clean_json.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

using Json = nlohmann::ordered_json;

std::string_view kind_name(Cause::Kind kind) {
  switch (kind) {
    case Cause::Kind::kRank:
      return "rank";
    case Cause::Kind::kHost:
      return "host";
    case Cause::Kind::kLaunch:
      return "launch";
    case Cause::Kind::kTimeout:
      return "timeout";
    case Cause::Kind::kSignal:
      return "signal";
    case Cause::Kind::kOutputClosed:
      return "output closed";
  }
  return "unknown";
}

Json cause_json(const JobReport& report) {
  const auto& cause = report.outcome->cause;
  if (!cause) return nullptr;
  Json out;
  out["kind"] = kind_name(cause->kind);
  if (cause->host >= 0 && cause->host < static_cast<int>(report.plan->hosts.size())) {
    out["host"] = report.plan->hosts[static_cast<std::size_t>(cause->host)].host.name;
  }
  if (cause->kind == Cause::Kind::kRank) out["rank"] = cause->exit.rank;
  const std::string& code = cause->failure.code.empty() ? cause->exit.code : cause->failure.code;
  if (!code.empty()) out["code"] = code;
  if (!cause->failure.message.empty()) out["message"] = cause->failure.message;
  if (!cause->failure.advice.empty()) out["advice"] = cause->failure.advice;
  if (cause->signal != 0) out["signal"] = cause->signal;
  return out;
}

Json host_json(const JobReport& report, std::size_t index) {
  const HostPlan& host = report.plan->hosts[index];
  Json out;
  out["name"] = host.host.name;
  if (!host.host.user.empty()) out["login"] = host.host.user;
  if (host.host.port) out["port"] = *host.host.port;
  out["slots"] = host.host.slots.value_or(static_cast<int>(host.slots.size()));
  out["ranks"] = Json::array();
  for (const Slot& slot : host.slots) out["ranks"].push_back(slot.rank);
  if (index < report.hellos.size() && report.hellos[index]) {
    const Hello& hello = *report.hellos[index];
    out["hostname"] = hello.hostname;
    out["user"] = hello.user;
    out["agent"] = hello.version;
    out["cpus"] = hello.cpus;
    out["gpus"] = hello.gpus;
    out["cache"] = hello.cache_directory;
    out["interfaces"] = Json::array();
    for (const InterfaceInfo& nic : hello.interfaces) {
      out["interfaces"].push_back(nic.name + " " + nic.address + "/" +
                                  std::to_string(nic.prefix_length));
    }
  }
  out["sent_bytes"] = report.board->sent(index);
  out["stages"] = Json::array();
  if (index < report.board->steps().size()) {
    for (const StartBoard::Step& step : report.board->steps()[index]) {
      Json one;
      one["stage"] = stage_name(step.stage);
      one["at_ms"] = fractional_ms(step.since - report.board->start());
      if (!step.detail.empty()) one["detail"] = step.detail;
      out["stages"].push_back(std::move(one));
    }
  }
  const auto goodbye = report.outcome->goodbyes.find(static_cast<int>(index));
  if (goodbye != report.outcome->goodbyes.end()) {
    out["survivors"] = goodbye->second.survivors;
    out["strays_killed"] = goodbye->second.killed;
  }
  return out;
}

Json ranks_json(const JobReport& report) {
  std::map<int, std::string> names;
  for (const HostPlan& host : report.plan->hosts) {
    for (const Slot& slot : host.slots) names[slot.rank] = host.host.name;
  }
  Json out = Json::array();
  for (const auto& [rank, exit] : report.outcome->exits) {
    Json one;
    one["rank"] = rank;
    one["host"] = names[rank];
    if (!report.programs.empty()) one["program"] = program_of_rank(report.programs, rank);
    one["exit_code"] = exit_code_of(exit);
    one["signal"] = exit.signal;
    one["ended_by_us"] = exit.terminated_by_us;
    if (!exit.code.empty()) one["code"] = exit.code;
    if (exit.stage != SpawnStage::kNone) {
      one["stage"] = spawn_stage_name(exit.stage);
      one["errno"] = exit.errnum;
      one["spawn_error"] = start_failure_text(exit);
    }
    if (!exit.hint.empty()) one["hint"] = exit.hint;
    one["max_rss_bytes"] = exit.max_rss_bytes;
    one["user_time_us"] = exit.user_time_us;
    one["system_time_us"] = exit.system_time_us;
    if (exit.counters.uses_runtime) {
      one["collectives"] = exit.counters.collectives;
      one["collective_bytes"] = exit.counters.bytes;
      one["waited_ms"] = exit.counters.waited_us / 1000;
    }
    if (exit.counters.gpu_count > 0) {
      one["gpus"] = exit.counters.gpu_count;
      one["gpu_mean_percent"] = exit.counters.gpu_mean_percent;
      one["gpu_peak_bytes"] = exit.counters.gpu_peak_bytes;
      one["gpu_total_bytes"] = exit.counters.gpu_total_bytes;
    }
    if (!exit.last_operation.empty()) one["last_operation"] = exit.last_operation;
    one["last_stderr"] = exit.last_stderr;
    out.push_back(std::move(one));
  }
  return out;
}

// Absent in jobs of one program, which is the command above.
void add_programs(const JobReport& report, Json& out) {
  for (const Program& program : report.programs) {
    out["programs"].push_back(
        {{"command", without_secrets(program.command)}, {"ranks", program.ranks}});
  }
}

// Absent where no rank was late.
void add_delays(const JobReport& report, Json& out) {
  for (const RankDelay& delay : delays_of(report)) {
    out["delays"].push_back({{"rank", delay.rank},
                             {"host", delay.host},
                             {"late_ms", delay.late_ms},
                             {"share", delay.share},
                             {"text", delay_text(delay)}});
  }
}

// Absent in jobs of a few seconds. What is said of GPUs is absent where there are none.
void add_usage(const JobReport& report, Json& out) {
  for (const UsagePoint& point : report.usage) {
    out["usage"].push_back({{"at_s", point.at_s},
                            {"rss_bytes", point.rss_bytes},
                            {"largest_rss_bytes", point.largest_rss_bytes},
                            {"cpu_percent", point.cpu_percent},
                            {"collectives_per_s", point.collectives_per_s},
                            {"bytes_per_s", point.bytes_per_s}});
    if (point.gpus == 0) continue;
    out["usage"].back()["gpu_percent"] = point.gpu_percent;
    out["usage"].back()["gpu_bytes"] = point.gpu_bytes;
  }
}

// Absent without --chaos.
void add_chaos(const JobReport& report, Json& out) {
  for (const ChaosStrike& strike : report.chaos) {
    out["chaos"].push_back({{"at_ms", strike.at.count()},
                            {"rank", strike.rank},
                            {"host", strike.host},
                            {"signal", strike.signal},
                            {"sent", strike.sent}});
  }
}

// Absent where there are none: most jobs have no --restarts.
void add_failed_attempts(const JobReport& report, Json& out) {
  for (const RestartPolicy::Attempt& attempt : report.failed_attempts) {
    out["failed_attempts"].push_back({{"cause", attempt.cause},
                                      {"exit_code", attempt.exit_code},
                                      {"ran_ms", attempt.ran.count()}});
  }
}

}  // namespace

// The processes of an elastic job have run for different times: their waits do not compare.
std::vector<RankDelay> delays_of(const JobReport& report) {
  if (report.outcome->elastic) return {};
  return rank_delays(report.outcome->exits, report.plan->hosts, report.ran);
}

std::string report_json(const JobReport& report) {
  Json out;
  out["schema"] = 1;
  out["version"] = report.version;
  out["job_id"] = report.job_id;
  out["ended_at"] = report.ended_at;
  out["seconds"] = report.seconds;
  out["exit_code"] = report.exit_code;
  out["command"] = without_secrets(report.command);
  add_programs(report, out);
  out["working_directory"] = report.working_directory;
  if (report.engine) {
    out["engine"] = {
        {"name", report.engine->name}, {"job", report.engine->job}, {"text", report.engine->text}};
  }
  out["world_size"] = report.plan->world_size;
  out["cause"] = cause_json(report);
  out["text"] = report.text;
  out["phases"] = Json::array();
  for (const auto& [name, ms] : report.phases) {
    Json one;
    one["name"] = name;
    one["at_ms"] = ms;
    out["phases"].push_back(std::move(one));
  }
  out["hosts"] = Json::array();
  for (std::size_t i = 0; i < report.plan->hosts.size(); ++i)
    out["hosts"].push_back(host_json(report, i));
  out["ran_ms"] = report.ran.count();
  add_delays(report, out);
  add_usage(report, out);
  out["ranks"] = ranks_json(report);
  if (!report.stacks.empty()) out["stacks"] = report.stacks;
  add_failed_attempts(report, out);
  add_chaos(report, out);
  for (const HostGpuFault& seen : report.gpu_faults) {
    out["gpu_faults"].push_back({{"host", seen.host},
                                 {"device", seen.fault.device},
                                 {"xid", seen.fault.xid},
                                 {"rank", seen.fault.rank},
                                 {"pid", seen.fault.pid},
                                 {"program", seen.fault.program},
                                 {"text", seen.fault.text},
                                 {"message", gpu_fault_text(seen)}});
  }
  for (const LostRecord& each : report.lost) {
    out["lost_records"].push_back(
        {{"what", each.what}, {"reason", each.reason}, {"code", each.code}});
  }
  out["events"] = Json::array();
  for (const std::string& line : report.events)
    out["events"].push_back(Json::parse(line, nullptr, false));
  clean_json(out, report.secrets);
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher
