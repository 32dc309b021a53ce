// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/signals.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

namespace hora::launcher {

namespace {

// A second caller waits longer for the effect of the first. A caller of both at once may lose the
// processor between them.
constexpr std::chrono::milliseconds kSameRequest{500};

bool is_handled_by(void (*handler)(int), int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == handler;
}

// A profiler or a sanitizer in this process has handlers of its own; those for a user's request
// give way.
bool asks_for_end(int signal) {
  if (signal == SIGTERM) return true;
  if (signal == SIGINT || signal == SIGHUP) return !is_handled_by(SIG_IGN, signal);
  return is_handled_by(SIG_DFL, signal);
}

// By default these do not end a process, or they have another purpose here. The first real-time
// signal wakes the writers of the output.
bool is_for_something_else(int signal) {
  for (const int other : {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
                          SIGWINCH, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ, SIGRTMIN}) {
    if (signal == other) return true;
  }
  return signal >= __SIGRTMIN && signal < SIGRTMIN;  // the C library's own
}

}  // namespace

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (is_for_something_else(signal)) continue;
    if (asks_for_end(signal)) sigaddset(&set, signal);
  }
  return set;
}

bool ends_job(int signal) {
  const sigset_t ending = ending_signals();
  return sigismember(&ending, signal) == 1;
}

Status check_interrupted() {
  sigset_t waiting;
  if (::sigpending(&waiting) != 0) return errno_error(errno, "looking for signals");
  if (sigisemptyset(&waiting) == 1) return Ok{};
  const sigset_t ending = ending_signals();
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&waiting, signal) == 1 && sigismember(&ending, signal) == 1) {
      return make_error(ErrorCode::kInterrupted, "a signal asks for the end");
    }
  }
  return Ok{};
}

Result<std::unique_ptr<Signals>> Signals::watch(os::EventLoop& loop,
                                                std::function<void(int signal)> handler) {
  sigset_t set = ending_signals();
  // QUIT also where a script's `&` or nohup has made this process ignore it: jobs that hang at
  // night run there. While it is blocked, the kernel keeps even a signal that is ignored.
  for (const int signal : {SIGQUIT, SIGTSTP, SIGCONT, SIGUSR1, SIGUSR2, SIGWINCH}) {
    sigaddset(&set, signal);
  }
  struct sigaction ignored {};
  struct sigaction old_pipe {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &old_pipe);
  sigset_t old_mask;
  if (const int failed = ::pthread_sigmask(SIG_BLOCK, &set, &old_mask); failed != 0) {
    return errno_error(failed, "blocking signals");
  }
  os::Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return errno_error(errno, "creating a signalfd");
  const int raw = fd.get();
  std::unique_ptr<Signals> signals(
      new Signals(loop, std::move(handler), std::move(fd), old_mask, old_pipe));
  HORA_TRY(loop.watch(raw, EPOLLIN, [taker = signals.get()](std::uint32_t) { taker->take(); }));
  return signals;
}

bool EndRequests::is_repeat(bool from_terminal, Clock::time_point now) {
  if (last_ && now - last_->made < kSameRequest && !(from_terminal && last_->from_terminal)) {
    return true;
  }
  last_ = {now, from_terminal};
  return false;
}

void Signals::take() {
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    from_terminal_ = info.ssi_code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT);
    const bool is_kernels = info.ssi_code == SI_KERNEL;
    if (ends_job(signal) && requests_.is_repeat(is_kernels, Clock::now())) continue;
    // Above its limit, the kernel sends it every second: that does not ask for more haste.
    if (signal == SIGXCPU && std::exchange(over_cpu_limit_, true)) continue;
    handler_(signal);
  }
}

Signals::~Signals() {
  loop_.unwatch(fd_.get());
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace hora::launcher
