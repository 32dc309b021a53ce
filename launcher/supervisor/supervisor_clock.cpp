// SPDX-License-Identifier: Apache-2.0
// What reaches a Supervisor from outside its hosts: time, signals, the reader of its output.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/proof.h"
#include "launcher/process/process_table.h"
#include "launcher/startup/start_report.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kSuspendPatience{1'000};
constexpr Milliseconds kLongestPause{
    2'500};  // between heartbeats: agents without an order know no lease

std::string seconds_text(os::Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

void Supervisor::arm_deadline() {
  if (deadline_timer_ != 0) loop_->cancel(deadline_timer_);
  deadline_timer_ = 0;
  const auto deadline = state_->next_deadline();
  if (!deadline) return;
  deadline_timer_ = loop_->call_at(*deadline, [this] {
    deadline_timer_ = 0;
    // Before a job that ran out of time is ended: where does it stand?
    if (state_->started() && !state_->ending() && !std::exchange(last_autopsy_made_, true)) {
      return hang_report_->begin("--timeout", [this] { feed(ClockTick{}); });
    }
    feed(ClockTick{});
  });
}

void Supervisor::beat() {
  const auto now = loop_->polled_at();  // we may have been stopped ourselves, or busy
  const Milliseconds pause = std::min<Milliseconds>(spec_.lease / 4, kLongestPause);
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
    HostRun& run = hosts_[host];
    if (!run.hello || !run.link->is_open()) continue;
    Silence& silence = run.link->silence();
    silence.look(next_beat_, now, pause);
    const auto length = silence.length(now);
    if (length > spec_.lease && !is_only_slow(host, length)) {
      run.link->close();
      feed(HostLost{host, "no sign of life for " + seconds_text(length), silence.last_heard()});
    } else {
      run.link->send(FrameType::kHeartbeat);
    }
  }
  next_beat_ = os::Clock::now() + pause;
  if (!state_->done()) loop_->call_at(next_beat_, [this] { beat(); });
}

// The agent on this machine: its end is its stream's, so that its silence says only that it gets no
// time. A stopped one would never do its work.
bool Supervisor::is_only_slow(int host, os::Clock::duration silence) {
  HostRun& run = hosts_[host];
  if (run.remote) return false;
  const Standing standing = standing_of(static_cast<pid_t>(run.hello->pid));
  if (standing == Standing::kStopped) return false;
  // Its last words, or the stream's end, may have come since the loop has looked.
  if (standing == Standing::kGone) return !std::exchange(run.seen_gone, true);
  if (run.told_slow_since != run.link->silence().last_heard()) {
    run.told_slow_since = run.link->silence().last_heard();
    os::log_warn("horarun", name_of(host) + ": its agent (process " +
                                std::to_string(run.hello->pid) + ") has said nothing for " +
                                seconds_text(silence) +
                                "; it lives, so the job goes on: this machine is very busy, or "
                                "waits for a disk");
  }
  return true;
}

void Supervisor::on_signal(int signal) {
  switch (signal) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
      if (flushing_) return stop_waiting_for_readers(signal);
      return feed(UserSignal{signal});
    case SIGQUIT:  // Ctrl-\ asks where the job stands, or its start
      if (state_->ending()) return feed(UserSignal{signal});
      if (!state_->started()) return show_start();
      return hang_report_->begin("SIGQUIT", [] {});
    case SIGUSR1:
    case SIGUSR2:
      for (HostRun& run : hosts_) {
        if (run.link)
          run.link->send(FrameType::kSignal, u32_payload(static_cast<std::uint32_t>(signal)));
      }
      return;
    case SIGTSTP:
      return suspend();
    default:
      return;  // CONT: handled where we stopped, or nothing to do
  }
}

Status Supervisor::watch_starter() {
  if (!spec_.end_with) return Ok{};
  auto starter = os::ProcessEnd::watch(*loop_, *spec_.end_with, [this] {
    tell("process " + std::to_string(*spec_.end_with) + " has ended (--end-with)\n");
    on_signal(SIGTERM);
  });
  if (!starter) return std::move(starter).error().with_context("--end-with");
  starter_ = std::move(*starter);
  return Ok{};
}

void Supervisor::show_start() {
  const std::string text =
      "where the start stands (SIGQUIT)\n" +
      start_timeout_text(display_.board(), os::Clock::now(), reach_words(spec_));
  events_.emit("hang_report", {{"text", text}});
  tell(text);
}

// Ctrl-Z: first the ranks stop, on all hosts, then we do.
void Supervisor::suspend() {
  if (suspend_timer_ != 0) return;
  hosts_to_suspend_ = 0;
  for (HostRun& run : hosts_) {
    if (!run.hello || !run.link->is_open()) continue;
    run.link->send(FrameType::kSuspend);
    ++hosts_to_suspend_;
  }
  suspend_timer_ = loop_->call_after(kSuspendPatience, [this] { stop_myself(); });
  if (hosts_to_suspend_ == 0) stop_myself();
}

void Supervisor::on(int, AgentSuspended) {
  if (suspend_timer_ != 0 && --hosts_to_suspend_ == 0) stop_myself();
}

void Supervisor::stop_myself() {
  loop_->cancel(suspend_timer_);
  suspend_timer_ = 0;
  ::raise(SIGSTOP);
  // ... and here the shell's fg or bg continues us.
  for (HostRun& run : hosts_) {
    if (!run.hello || !run.link->is_open()) continue;
    run.link->silence().heard(os::Clock::now());
    run.link->send(FrameType::kResume);
  }
  if (streams_) streams_->resume_input();
}

void Supervisor::on_console_broken(int fd, int errnum) {
  if (console_error_ == 0) {
    console_error_ = errnum;
    broken_console_ = fd == STDOUT_FILENO ? "standard output" : "standard error";
  }
  if (errnum == EPIPE) return feed(OutputClosed{});
  launch_failed(failure::kOutput, errno_error(errnum, "writing to " + broken_console_));
}

std::string Supervisor::name_of(int host) const { return plan_.hosts[host].host.name; }

}  // namespace hora::launcher
