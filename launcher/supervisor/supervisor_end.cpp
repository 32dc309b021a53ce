// SPDX-License-Identifier: Apache-2.0
// What a Supervisor says of its job: while it hangs, and when it is over.
#include <signal.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/failures/proof.h"
#include "launcher/report/job_recorder.h"
#include "launcher/report/outcome_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/base/duration.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kLastWords{300};  // for whoever does read

}  // namespace

void Supervisor::make_autopsy() {
  HangReport::Handlers handlers;
  handlers.ask = [this](int host, Milliseconds patience) {
    const auto& link = hosts_[host].link;
    if (!link || !link->is_open()) return false;
    link->send(FrameType::kDump, u32_payload(static_cast<std::uint32_t>(patience.count())));
    return true;
  };
  handlers.hosts = [this]() -> const std::vector<HostPlan>& { return plan_.hosts; };
  handlers.tell = [this](const std::string& text) {
    events_.emit("hang_report", {{"text", text}});
    tell(text);
  };
  hang_report_ = std::make_unique<HangReport>(*loop_, std::move(handlers));
}

void Supervisor::watch_for_stall() {
  if (spec_.on_stall == StallPolicy::kIgnore) return;
  hang_report_->watch_for_stall(spec_.stall_after, [this] {
    if (state_->ending()) return;
    const std::string silence = "no rank has written anything or ended a collective for " +
                                std::to_string(spec_.stall_after.count() / 1000) + " s";
    events_.emit("stall", {{"silent_ms", std::int64_t{spec_.stall_after.count()}}});
    tell(silence + " (--stall-after)\n");
    if (spec_.on_stall == StallPolicy::kWarn) return;
    hang_report_->begin("stall", [this, silence] {
      if (spec_.on_stall != StallPolicy::kKill) return;
      feed(LaunchFailed{{std::string(failure::kStalled), silence + "; the job was ended", ""},
                        exit_code_of_failure(failure::kStalled)});
    });
  });
}

void Supervisor::say(std::string text) {
  if (console_) console_->say(std::move(text));
}

void Supervisor::tell(const std::string& text) {
  display_.hide();
  if (!events_.enabled()) say("horarun: " + text);
}

// The last that is said, when the ranks' output is written or given up.
void Supervisor::leave() {
  if (std::exchange(leaving_, true)) return;
  display_.stop();
  find_lost_records();
  print_outcome();
  if (spec_.timings) {
    say(timings_.text() + display_.board().waterfall() +
        resource_usage_text(state_->outcome().exits, plan_.hosts));
  }
  exit_code_ = final_exit_code();
  console_->flush([this] {
    // The events themselves; there is nowhere left to say it.
    if (exit_code_ == 0 && spec_.json && !console_->loss().empty()) exit_code_ = kExitLauncher;
    loop_->stop();
  });
}

// Ctrl-C when the job is over: what is not read now is not waited for.
void Supervisor::stop_waiting_for_readers(int signal) {
  if (!leaving_) gave_up_by_ = signal;
  leave();
  loop_->call_after(kLastWords, [this] { loop_->stop(); });
}

// --- what the job was to leave -------------------------------------------------------------------

void Supervisor::lose(LostRecord record) {
  events_.emit("lost_record",
               {{"what", record.what}, {"reason", record.reason}, {"code", record.code}});
  lost_.push_back(std::move(record));
}

void Supervisor::find_lost_records() {
  const std::string output(failure::kOutput);
  if (streams_) {
    for (const JobStreams::CutFile& file : streams_->cut_files()) {
      lose(
          {"--output-filename: " + file.path, std::system_category().message(file.errnum), output});
    }
  }
  const auto& cause = state_->outcome().cause;
  const bool is_cause = cause && cause->failure.code == failure::kOutput;
  if (console_error_ != 0 && console_error_ != EPIPE && !is_cause) {
    lose({broken_console_, std::system_category().message(console_error_), output});
  }
}

// A rank's own failure comes first; a success is none when what it was to leave is lost.
int Supervisor::final_exit_code() const {
  const int code = state_->outcome().exit_code();
  if (code != 0) return code;
  if (!lost_.empty()) return kExitLauncher;
  if (console_error_ == EPIPE) return kExitSignalBase + SIGPIPE;
  return gave_up_by_ == 0 ? 0 : kExitSignalBase + gave_up_by_;
}

JobReport Supervisor::record(std::string text) const {
  JobReport report;
  report.version = HORA_VERSION;
  report.job_id = identity_.job_id;
  report.ended_at = rfc3339_now();
  report.command = spec_.command;
  report.working_directory = spec_.working_directory;
  report.plan = &plan_;
  report.outcome = &state_->outcome();
  report.exit_code = final_exit_code();
  report.lost = lost_;
  report.board = &display_.board();
  for (const HostRun& run : hosts_) report.hellos.push_back(run.hello);
  for (const auto& [name, when] : timings_.marks()) {
    report.phases.emplace_back(name, fractional_ms(when - timings_.start()));
  }
  report.text = std::move(text);
  report.events = events_.kept();
  report.secrets = SecretFilter(environment_);
  report.stacks = hang_report_->last_text();
  report.chaos = chaos_strikes_;
  report.gpu_faults = gpu_faults_;
  report.seconds = std::chrono::duration<double>(os::Clock::now() - timings_.start()).count();
  return report;
}

void Supervisor::print_outcome() {
  const std::string text = describe_outcome(state_->outcome(), plan_.hosts,
                                            {board_at_timeout_, reach_words(spec_), chaos_strikes_,
                                             spec_.working_directory, gpu_faults_});
  if (!spec_.report_file.empty()) write_report_of(text);
  const std::string lost = lost_records_text(lost_);
  events_.take(job_end(text + lost));
  if (!text.empty()) tell(text);
  if (!lost.empty()) tell(lost);
}

void Supervisor::write_report_of(const std::string& text) {
  const std::string all = text + lost_records_text(lost_);
  JobReport report = record(all);
  report.events.push_back(job_end(all));
  if (const auto wrote = write_report(report, spec_.report_file); !wrote) {
    lose({"--report", wrote.error().message, std::string(failure::kReport)});
  }
}

std::string Supervisor::job_end(const std::string& message) const {
  const auto& cause = state_->outcome().cause;
  const std::string code = cause           ? cause->failure.code
                           : lost_.empty() ? std::string()
                                           : lost_.front().code;
  return EventLog::line("job_end", {{"job_id", identity_.job_id},
                                    {"exit_code", std::int64_t{final_exit_code()}},
                                    {"code", code},
                                    {"message", message}});
}

}  // namespace hora::launcher
