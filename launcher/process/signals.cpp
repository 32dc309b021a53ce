// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/signals.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace hora::launcher {

Result<std::unique_ptr<Signals>> Signals::watch(os::EventLoop& loop,
                                                std::function<void(int signal)> handler) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGUSR1, SIGUSR2}) {
    // nohup and `trap '' INT` ask not to be disturbed; that holds for HUP, INT and QUIT.
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN &&
        (signal == SIGHUP || signal == SIGINT || signal == SIGQUIT)) {
      continue;
    }
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
  std::unique_ptr<Signals> signals(new Signals(loop, std::move(fd), old_mask, old_pipe));
  HORA_TRY(loop.watch(raw, EPOLLIN, [raw, handler = std::move(handler)](std::uint32_t) {
    signalfd_siginfo info;
    while (::read(raw, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      handler(static_cast<int>(info.ssi_signo));
    }
  }));
  return signals;
}

Signals::~Signals() {
  loop_.unwatch(fd_.get());
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace hora::launcher
