// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/command_host.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/process/program_search.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/transports/rsh_argv.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kReadSize = 64 * 1024;
constexpr std::size_t kBurst = 1024 * 1024;  // bytes moved before other hosts have their turn
constexpr std::size_t kMaxErrors = 4096;
constexpr auto kExitPatience = std::chrono::seconds(3);  // between end of output and exit
constexpr auto kEndPatience = std::chrono::seconds(1);   // after end of input, and after TERM
constexpr int kMostRefusals = 5;                         // that may pass: two to four seconds

}  // namespace

CommandHost::CommandHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Host host,
                         std::vector<std::string> command, Clock::time_point deadline, Done done)
    : loop_(loop),
      link_(loop, std::move(local), std::move(options), *this),
      host_(std::move(host)),
      command_(std::move(command)),
      deadline_(deadline),
      done_(std::move(done)),
      refusals_{"", BackOff(std::random_device{}())} {}

CommandHost::~CommandHost() {
  loop_.cancel(start_timer_);
  loop_.cancel(refusals_.timer);
  drop_child();
}

void CommandHost::begin() {
  if (!link_.open()) return finish();
  start_timer_ = loop_.call_at(deadline_, [this] { on_deadline(); });
  run();
}

// Starts the client; the states are implicit: running_, then output_at_end_ and exited_ in either
// order, then report_end().
void CommandHost::run() {
  auto line = link_.command_line();
  if (!line) return fail(line.error().message);
  auto argv = rsh_argv(command_, host_, *line);
  if (!argv) return fail(argv.error().message);
  link_.report(Stage::kConnect, rsh_program(command_));
  auto child = PipedChild::start(*argv);
  if (!child) return fail(child.error().message);
  child_ = *std::move(child);
  running_ = true;
  watch(out_, child_.stdout_fd.get(), EPOLLIN, [this](std::uint32_t) { pump(); });
  watch(err_, child_.stderr_fd.get(), EPOLLIN, [this](std::uint32_t) { read_errors(); });
  // Without a pidfd (old kernels) only the end of the output shows that the child is gone.
  if (child_.ended_fd() >= 0) {
    watch(end_, child_.ended_fd(), EPOLLIN, [this](std::uint32_t) { on_exit(); });
  }
  link_.report(Stage::kShell);
}

void CommandHost::drop_child() {
  loop_.cancel(exit_timer_);
  exit_timer_ = 0;
  for (Watch* each : {&in_, &out_, &err_, &end_}) unwatch(*each);
  child_ = PipedChild();
  running_ = exited_ = output_at_end_ = false;
  errors_.clear();
}

void CommandHost::fail(const std::string& why) {
  link_.fail({std::string(failure::kRsh), why, ""});
}

// The client's own words are the best explanation of a start that hangs, so the last of them go
// into the error.
void CommandHost::on_deadline() {
  start_timer_ = 0;
  if (link_.agent_started() || link_.ended()) return;
  if (running_) read_errors();
  const auto said = trim(errors_);
  fail("'" + rsh_program(command_) + "' did not start an agent in time" +
       (said.empty() ? "" : "; it said: " + quote(said)));
}

// --- what the link says --------------------------------------------------------------------------

void CommandHost::link_changed() { pump(); }

// Unlike ssh channels, a client command has one stream: a restart needs a new process.
void CommandHost::link_restarts() {
  drop_child();
  run();
}

void CommandHost::link_finished() {
  loop_.cancel(start_timer_);
  start_timer_ = 0;
  loop_.cancel(std::exchange(refusals_.timer, 0));
  finishing_ = true;
  if (!running_ || exited_ || child_.try_wait()) return finish();
  // A client whose input ends lets the far side end in order.
  unwatch(in_);
  child_.stdin_fd.reset();
  loop_.cancel(exit_timer_);
  exit_timer_ = loop_.call_after(kEndPatience, [this] { ask_child_to_end(); });
}

// The second step of three: end of input, then SIGTERM, then SIGKILL when the child is dropped.
void CommandHost::ask_child_to_end() {
  // Its output from here on is about our request, and not a reason for the job's end.
  listener_ = nullptr;
  child_.ask_to_end();
  exit_timer_ = loop_.call_after(kEndPatience, [this] {
    exit_timer_ = 0;
    finish();
  });
}

void CommandHost::finish() {
  loop_.cancel(exit_timer_);
  exit_timer_ = 0;
  if (done_) std::exchange(done_, nullptr)(this);
}

void CommandHost::hurry() {
  child_.stdin_fd.reset();
  child_.stdout_fd.reset();
  child_.ask_to_end();
}

// --- bytes ---------------------------------------------------------------------------------------

void CommandHost::pump() {
  if (!running_) return;
  if (!finishing_) write_input();
  read_output();
}

void CommandHost::write_input() {
  while (child_.stdin_fd.valid() && !link_.outgoing().empty()) {
    const auto bytes = link_.outgoing();
    const ssize_t wrote = ::write(child_.stdin_fd.get(), bytes.data(), bytes.size());
    if (wrote > 0) {
      link_.sent(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EAGAIN) {
      if (!in_.on) {
        watch(in_, child_.stdin_fd.get(), EPOLLOUT, [this](std::uint32_t) { pump(); });
      }
      return;
    } else if (wrote == 0 || errno != EINTR) {  // it reads no more: its exit will say why
      unwatch(in_);
      child_.stdin_fd.reset();
    }
  }
  unwatch(in_);
  if (link_.wants_end_of_input()) child_.stdin_fd.reset();
}

void CommandHost::read_output() {
  const auto buffer = os::thread_buffer<CommandHost, kReadSize>();
  std::size_t moved = 0;
  while (!output_at_end_ && moved < kBurst) {
    const std::size_t room = std::min(link_.room(), buffer.size());
    if (room == 0) break;
    const ssize_t got = ::read(child_.stdout_fd.get(), buffer.data(), room);
    if (got > 0) {
      moved += static_cast<std::size_t>(got);
      link_.on_remote_output({buffer.data(), static_cast<std::size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      if (!exited_) break;
      // Another process (a forked helper of the client) keeps the pipe open; the command itself is
      // gone.
      output_at_end_ = true;
    } else {
      output_at_end_ = true;
    }
  }
  if (output_at_end_) {
    unwatch(out_);
    return settle_end();
  }
  rewatch(out_, link_.room() == 0 ? 0u : EPOLLIN);
}

// Keeps only the last bytes: a client in debug mode prints without end.
void CommandHost::read_errors() {
  char buffer[kMaxErrors];
  while (child_.stderr_fd.valid()) {
    const ssize_t got = ::read(child_.stderr_fd.get(), buffer, sizeof buffer);
    if (got > 0) {
      const std::string_view bytes(buffer, static_cast<std::size_t>(got));
      errors_.append(bytes);
      if (errors_.size() > kMaxErrors) errors_.erase(0, errors_.size() - kMaxErrors);
      link_.on_remote_errors(bytes);
      if (listener_) listener_(bytes);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {
      unwatch(err_);
      child_.stderr_fd.reset();
    }
  }
}

// --- the end -------------------------------------------------------------------------------------

// The exit may be seen before the last output is read, so pump() drains the pipe first.
void CommandHost::on_exit() {
  unwatch(end_);
  exited_ = true;
  if (finishing_) return finish();
  pump();
}

// The output has ended; the exit follows, usually at once.
void CommandHost::settle_end() {
  if (!running_) return;
  if (exited_ || child_.try_wait()) return report_end();
  if (exit_timer_ != 0) return;
  exit_timer_ = loop_.call_after(kExitPatience, [this] {
    exit_timer_ = 0;
    report_end();
  });
}

// Both on_exit() and settle_end() lead here; the exchange makes the report happen once.
void CommandHost::report_end() {
  if (!std::exchange(running_, false)) return;
  loop_.cancel(exit_timer_);
  exit_timer_ = 0;
  read_errors();
  for (Watch* each : {&in_, &out_, &err_, &end_}) unwatch(*each);
  if (is_refused_for_now()) return run_later();
  RemoteEnd end;
  const auto status = child_.try_wait();
  if (!status) {
    end.link_error = "'" + rsh_program(command_) + "' closed its output but keeps running";
  } else if (const auto note = *status == 0 ? "" : carriage_return_note(command_);
             *status == kExitClientFailed || !note.empty()) {
    end.link_error =
        "'" + rsh_program(command_) + "' exited with status " + std::to_string(*status) + note;
    // ssh's reason is what the user needs.
    const bool quiet = std::find(command_.begin(), command_.end(), "-q") != command_.end();
    if (quiet && note.empty() && trim(errors_).empty())
      end.link_error += " without a word; leave -q out to see why";
  } else {
    end.exit_status = status;
  }
  link_.on_remote_end(end);
}

// The client's own words decide: its exit status is that of a host which refuses for good, too.
bool CommandHost::is_refused_for_now() const {
  return !refusals_.words.empty() && errors_.find(refusals_.words) != std::string::npos &&
         !link_.agent_started() && !link_.ended() && refusals_.back_off.attempts() < kMostRefusals;
}

void CommandHost::run_later() {
  refusals_.back_off.count_attempt();
  const auto pause = refusals_.back_off.next_pause();
  link_.report(Stage::kConnect, "trying again in " + std::to_string(pause.count()) +
                                    " ms: " + visible_line(trim(errors_)));
  drop_child();
  refusals_.timer = loop_.call_after(pause, [this] {
    refusals_.timer = 0;
    run();
  });
}

// --- watches -------------------------------------------------------------------------------------

// A failed watch leaves `on` false, so the other two functions skip it.
void CommandHost::watch(Watch& watch, int fd, std::uint32_t events,
                        os::EventLoop::IoHandler handler) {
  watch.fd = fd;
  watch.events = events;
  watch.on = loop_.watch(fd, events, std::move(handler)).has_value();
}

void CommandHost::rewatch(Watch& watch, std::uint32_t events) {
  if (!watch.on || watch.events == events) return;
  watch.events = events;
  (void)loop_.change(watch.fd, events);
}

void CommandHost::unwatch(Watch& watch) {
  if (std::exchange(watch.on, false)) loop_.unwatch(watch.fd);
}

}  // namespace hora::launcher
