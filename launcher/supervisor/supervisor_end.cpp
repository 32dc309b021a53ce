// What a Supervisor says of its job: while it hangs, and when it is over.
#include <signal.h>

#include <cerrno>
#include <utility>

#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/failures/proof.h"
#include "launcher/report/job_recorder.h"
#include "launcher/report/outcome_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/os/log.h"

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
  print_outcome();
  if (spec_.timings) {
    say(timings_.text() + display_.board().waterfall() +
        resource_usage_text(state_->outcome().exits, plan_.hosts));
  }
  exit_code_ = state_->outcome().exit_code();
  // The last output may turn out to be lost when the ranks have succeeded already.
  if (exit_code_ == 0 && console_error_ != 0) exit_code_ = lost_output_code();
  console_->flush([this] { loop_->stop(); });
}

// Ctrl-C when the job is over: what is not read now is not waited for.
void Supervisor::stop_waiting_for_readers() {
  leave();
  loop_->call_after(kLastWords, [this] { loop_->stop(); });
}

int Supervisor::lost_output_code() {
  if (console_error_ == EPIPE) return kExitSignalBase + SIGPIPE;
  say("horarun: " + errno_error(console_error_, "writing to " + broken_console_).message + " [" +
      std::string(failure::kOutput) + "]\n");
  return kExitLauncher;
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
  report.board = &display_.board();
  for (const HostRun& run : hosts_) report.hellos.push_back(run.hello);
  using Ms = std::chrono::duration<double, std::milli>;
  for (const auto& [name, when] : timings_.marks()) {
    report.phases.emplace_back(name, Ms(when - timings_.start()).count());
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
  const JobOutcome& outcome = state_->outcome();
  const std::string text = describe_outcome(outcome, plan_.hosts,
                                            {board_at_timeout_, reach_words(spec_), chaos_strikes_,
                                             spec_.working_directory, gpu_faults_});
  const std::string code = outcome.cause ? outcome.cause->failure.code : std::string();
  events_.emit("job_end", {{"job_id", identity_.job_id},
                           {"exit_code", std::int64_t{outcome.exit_code()}},
                           {"code", code},
                           {"message", text}});
  if (!text.empty()) tell(text);
  if (spec_.report_file.empty()) return;
  if (const auto wrote = write_report(record(text), spec_.report_file); !wrote) {
    os::log_error("horarun", "--report: " + wrote.error().message + " [" +
                                 std::string(failure::kReport) + "]");
  }
}

}  // namespace hora::launcher
