// SPDX-License-Identifier: Apache-2.0
// Keeps a library that writes to sockets without MSG_NOSIGNAL from ending the process with SIGPIPE
// when a peer has gone: the write fails with EPIPE, as the library expects.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace hora::collectives {

// Blocks SIGPIPE while it lives, for this thread and the threads that it starts (which keep the
// mask).
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    // A SIGPIPE that this thread has raised meanwhile is pending: consume it before unblocking the
    // signal.
    sigset_t waiting;
    if (sigpending(&waiting) == 0 && sigismember(&waiting, SIGPIPE) == 1) {
      const timespec at_once{};
      sigtimedwait(&pipe_, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace hora::collectives
