// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/narrator.h"

#include <termios.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "launcher/report/job_recorder.h"
#include "launcher/report/outcome_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/startup/start_board.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";

// With --ship the ranks' directory is a copy of what the user has here.
std::function<bool(const std::string&)> files_seen_from(const JobSpec& spec) {
  return [&spec](const std::string& path) {
    const std::string whole = path.starts_with('/') ? path : spec.working_directory + "/" + path;
    return ::access(whole.c_str(), F_OK) == 0;
  };
}

}  // namespace

Narrator::Narrator(const JobSpec& spec, const EnvironmentList& environment)
    : spec_(spec),
      environment_(environment),
      display_(timings_.start(), !spec.json && !spec.verbose,
               [this](std::string text) { say(std::move(text)); }),
      events_(spec.json, !spec.report_files.empty(),
              [this](std::string line) { say(std::move(line)); }) {}

Narrator::~Narrator() { os::set_log_sink({}); }

void Narrator::open(os::EventLoop& loop, std::string job_id) {
  loop_ = &loop;
  job_id_ = std::move(job_id);
  console_.emplace(loop, STDERR_FILENO, &row_is_open_);
  os::set_log_sink([this](std::string line) { console_->say(std::move(line)); });
}

void Narrator::say(std::string text) {
  if (console_) console_->say(std::move(text));
}

void Narrator::print(const std::string& text) {
  display_.hide();
  if (!events_.enabled()) say("horarun: " + text);
}

// --- the start -----------------------------------------------------------------------------------

void Narrator::allocation_found(const JobEngine& engine) {
  events_.emit("allocation", {{"engine", engine.name}, {"job", engine.job}, {"text", engine.text}});
  print(engine.text + "\n");
}

void Narrator::begin_start(std::vector<std::string> hosts) {
  display_.begin(*loop_, std::move(hosts));
}

void Narrator::reach(int host, const std::string& name, Stage stage, std::string_view detail) {
  display_.reach(host, stage, detail);
  events_.emit(
      "stage",
      {{"host", name}, {"stage", std::string(stage_name(stage))}, {"detail", std::string(detail)}});
  os::log_debug(kComponent, name + ": " + std::string(stage_name(stage)) +
                                (detail.empty() ? "" : ": " + std::string(detail)));
  if (stage == Stage::kAbsent) report_absent(host, name, detail);
}

// Once for each host, and of a large job only of the first ones: the others come as these do.
void Narrator::report_absent(int host, const std::string& name, std::string_view why) {
  constexpr std::size_t kNamed = 8;
  if (events_.enabled() || !absent_.insert(host).second || absent_.size() > kNamed + 1) return;
  display_.clear();
  say(absent_.size() > kNamed ? "horarun: waiting for more hosts\n"
                              : "horarun: waiting for " + name + ": " + std::string(why) + "\n");
}

void Narrator::agent_greeted(int host, const std::string& name, const Hello& hello,
                             bool lacks_runtime, std::size_t shipped_bytes) {
  display_.reach(host, Stage::kAgent);
  mark("agent on " + name);
  if (lacks_runtime) reach(host, name, Stage::kShip, "the runtime");
  events_.emit("agent", {{"host", name},
                         {"hostname", hello.hostname},
                         {"pid", hello.pid},
                         {"shipped_bytes", static_cast<std::int64_t>(shipped_bytes)}});
  os::log_info(kComponent, name + ": agent ready, shipped " + std::to_string(shipped_bytes) +
                               " bytes of runtime");
}

// When all hosts have answered, so that it is one line for all of them; most of it is on its way
// then.
void Narrator::vendor_part_sent(const std::string& library, std::size_t bytes, int hosts) {
  events_.emit("sending", {{"library", library},
                           {"bytes", static_cast<std::int64_t>(bytes)},
                           {"hosts", std::int64_t{hosts}}});
  char size[32];
  std::snprintf(size, sizeof size, "%.1f MB", static_cast<double>(bytes) / 1e6);
  print("sending " + library + " (" + size + ") to " + counted(hosts, "host") + "\n");
}

// Usually the launcher has sent it, and agent_greeted() has reported it.
void Narrator::runtime_supplied(const std::string& name, const RuntimeSource& source) {
  const std::string hosts = join(source.hosts, ", ");
  events_.emit("runtime", {{"host", name},
                           {"sent_bytes", static_cast<std::int64_t>(source.sent_bytes)},
                           {"fetched_bytes", static_cast<std::int64_t>(source.fetched_bytes)},
                           {"from", hosts}});
  if (source.fetched_bytes == 0) return;
  os::log_info(kComponent, name + ": fetched " + std::to_string(source.fetched_bytes) +
                               " bytes of runtime from " + hosts);
}

void Narrator::network_chosen(const std::string& name, const HostRoute& route) {
  events_.emit("network", {{"host", name},
                           {"interface", route.interface},
                           {"address", route.address},
                           {"reason", route.reason}});
  os::log_info(kComponent,
               name + ": " + route.interface + " " + route.address + ": " + route.reason);
}

void Narrator::ranks_started(int host, const std::string& name, const Started& started,
                             std::size_t shipped_bytes) {
  display_.note_sent(host, shipped_bytes);
  for (const std::string& note : started.notes) {
    events_.emit("placement", {{"host", name}, {"note", note}});
    report_placement(name + ": " + note);
  }
  mark("ranks started on " + name);
  for (const auto& [rank, pid] : started.pids) {
    events_.emit("rank_start", {{"rank", std::int64_t{rank}}, {"host", name}, {"pid", pid}});
  }
}

// Only a user who asks for a binding sees where the ranks were placed: for the others it would be a
// line for each rank that says what they have not asked.
void Narrator::report_placement(const std::string& note) {
  const bool asked = (spec_.bind != "auto" && spec_.bind != "none") ||
                     !spec_.gpus_per_rank.empty() || !spec_.seats.empty();
  if (!asked || spec_.verbose || events_.enabled()) return os::log_info(kComponent, note);
  print(note + "\n");
}

void Narrator::keep_start_table() {
  start_table_ = start_timeout_text(display_.board(), Clock::now(), reach_words(spec_));
}

void Narrator::show_start() {
  hang_report("where the start stands (SIGQUIT)\n" +
              start_timeout_text(display_.board(), Clock::now(), reach_words(spec_)));
}

void Narrator::key_pressed() {
  termios settings{};
  const bool known = ::tcgetattr(STDERR_FILENO, &settings) == 0;
  if (known && (settings.c_lflag & ECHO) != 0 && (settings.c_lflag & ECHOCTL) != 0) {
    row_is_open_ = true;
  }
}

// --- ranks ---------------------------------------------------------------------------------------

// A program gets the figures apart from the text, and the rank that is to be looked at.
void Narrator::progress(const std::string& text, const JobFigures& figures) {
  RankFigures worst;
  worst.rank = -1;
  if (!figures.worst.empty()) worst = figures.worst.front();
  events_.emit("progress", {{"message", text},
                            {"ranks", std::int64_t{figures.ranks}},
                            {"rank", std::int64_t{worst.rank}},
                            {"host", worst.host},
                            {"delay_percent", nearest(100 * worst.delay_share)},
                            {"rss_bytes", figures.rss_bytes}});
  print(text + "\n");
}

void Narrator::agent_logged(const std::string& name, const LogLine& line) {
  os::log(static_cast<os::LogLevel>(line.level), name, line.message);
}

void Narrator::rank_ended(const std::string& name, const RankExit& exit) {
  const bool started = exit.stage == SpawnStage::kNone;
  events_.emit("rank_exit", {{"rank", std::int64_t{exit.rank}},
                             {"host", name},
                             {"exit_code", std::int64_t{exit_code_of(exit)}},
                             {"signal", std::int64_t{exit.signal}},
                             {"terminated", exit.terminated_by_us},
                             {"stage", std::string(started ? "" : spawn_stage_name(exit.stage))},
                             {"errno", std::int64_t{exit.errnum}},
                             {"max_rss_bytes", exit.max_rss_bytes},
                             {"user_time_us", exit.user_time_us},
                             {"system_time_us", exit.system_time_us},
                             {"last_operation", exit.last_operation}});
  if (!exit.lost_record.empty()) {
    lose({"rank " + std::to_string(exit.rank) + " on " + name, exit.lost_record,
          std::string(failure::kOutput)});
  }
  os::log_debug(kComponent, "rank " + std::to_string(exit.rank) + " ended with code " +
                                std::to_string(exit_code_of(exit)));
}

void Narrator::gpu_failed(const std::string& name, GpuFault fault) {
  gpu_faults_.push_back({name, std::move(fault)});
  const HostGpuFault& seen = gpu_faults_.back();
  events_.emit("gpu_fault", {{"host", seen.host},
                             {"device", seen.fault.device},
                             {"xid", std::int64_t{seen.fault.xid}},
                             {"rank", std::int64_t{seen.fault.rank}},
                             {"pid", seen.fault.pid},
                             {"message", gpu_fault_text(seen)}});
  print(gpu_fault_text(seen) + "\n");
}

void Narrator::fault_injected(ChaosStrike strike) {
  events_.emit("chaos", {{"rank", std::int64_t{strike.rank}},
                         {"host", strike.host},
                         {"signal", std::int64_t{strike.signal}},
                         {"sent", strike.sent},
                         {"at_ms", std::int64_t{strike.at.count()}}});
  print("chaos: " + strike_text(strike) + "\n");
  strikes_.push_back(std::move(strike));
}

void Narrator::stalled(std::chrono::milliseconds silence, const std::string& text) {
  events_.emit("stall", {{"silent_ms", std::int64_t{silence.count()}}});
  print(text);
}

void Narrator::hang_report(const std::string& text) {
  events_.emit("hang_report", {{"text", text}});
  print(text);
}

void Narrator::epoch_began(int epoch, int ranks, const std::string& plan) {
  events_.emit("epoch",
               {{"epoch", std::int64_t{epoch}}, {"ranks", std::int64_t{ranks}}, {"plan", plan}});
}

void Narrator::elastic_message(const std::string& text, bool is_warning) {
  events_.emit("elastic", {{"message", text}, {"warning", is_warning}});
  if (is_warning || spec_.verbose) print(text + "\n");
}

// --- the end -------------------------------------------------------------------------------------

void Narrator::lose(LostRecord record) {
  events_.emit("lost_record",
               {{"what", record.what}, {"reason", record.reason}, {"code", record.code}});
  lost_.push_back(std::move(record));
}

int Narrator::exit_code(const EndedJob& job) const {
  EndOfOutput end = job.end;
  end.records_lost = !lost_.empty();
  return final_exit_code(job.outcome, end);
}

// The report comes before the messages: when it is lost, they say so.
int Narrator::end(const EndedJob& job) {
  display_.stop();
  std::string text = describe_outcome(
      job.outcome, job.plan.hosts,
      {start_table_, reach_words(spec_), strikes_, spec_.working_directory, gpu_faults_,
       spec_.programs, job.local, spec_.stdin_policy == StdinPolicy::kRankZero,
       spec_.pty.has_value(), files_seen_from(spec_)});
  if (!job.why_not_restarted.empty()) text += "  " + job.why_not_restarted + "\n";
  const bool is_over = job.restart.empty();
  if (is_over && !spec_.report_files.empty()) write_report_of(job, text);
  const std::string lost = lost_records_text(lost_);
  if (is_over && events_.listens()) events_.take(job_end(job, text + lost));
  if (!text.empty()) print(text);
  if (!lost.empty()) print(lost);
  if (!is_over) report_restart(job);
  if (spec_.timings) {
    say(timings_.text() + display_.board().waterfall() +
        resource_usage_text(job.outcome.exits, job.plan.hosts));
  }
  return exit_code(job);
}

void Narrator::report_restart(const EndedJob& job) {
  const RestartPolicy::Attempt& failed = job.failed_attempts.back();
  events_.emit("restart", {{"attempt", static_cast<std::int64_t>(job.failed_attempts.size())},
                           {"exit_code", std::int64_t{failed.exit_code}},
                           {"cause", failed.cause},
                           {"message", job.restart}});
  print(job.restart + "\n");
}

void Narrator::write_report_of(const EndedJob& job, const std::string& text) {
  const std::string all = text + lost_records_text(lost_);
  JobReport report = record(job, all);
  report.events.push_back(job_end(job, all));
  for (const std::string& file : spec_.report_files) {
    if (const auto wrote = write_report(report, file); !wrote) {
      lose({"--report", wrote.error().message, std::string(failure::kReport)});
    }
  }
}

JobReport Narrator::record(const EndedJob& job, std::string text) const {
  JobReport report;
  report.version = HORA_VERSION;
  report.job_id = job_id_;
  report.ended_at = rfc3339_now();
  report.command = spec_.command;
  report.programs = spec_.programs;
  report.working_directory = spec_.working_directory;
  report.engine = spec_.engine;
  report.plan = &job.plan;
  report.outcome = &job.outcome;
  report.exit_code = exit_code(job);
  report.lost = lost_;
  report.board = &display_.board();
  report.hellos = job.hellos;
  for (const auto& [name, when] : timings_.marks()) {
    report.phases.emplace_back(name, fractional_ms(when - timings_.start()));
  }
  report.text = std::move(text);
  report.events = events_.kept();
  report.secrets = SecretFilter(environment_);
  report.failed_attempts = job.failed_attempts;
  report.stacks = job.stacks;
  report.ran = job.ran;
  report.usage = job.usage;
  report.chaos = strikes_;
  report.gpu_faults = gpu_faults_;
  report.seconds = std::chrono::duration<double>(Clock::now() - timings_.start()).count();
  return report;
}

std::string Narrator::job_end(const EndedJob& job, const std::string& message) const {
  const auto& cause = job.outcome.cause;
  const std::string code = cause           ? cause->failure.code
                           : lost_.empty() ? std::string()
                                           : lost_.front().code;
  return EventLog::line("job_end", {{"job_id", job_id_},
                                    {"exit_code", std::int64_t{exit_code(job)}},
                                    {"code", code},
                                    {"message", message}});
}

void Narrator::flush(std::function<void(bool events_lost)> done) {
  console_->flush(
      [this, done = std::move(done)] { done(spec_.json && !console_->loss().empty()); });
}

}  // namespace hora::launcher
