// SPDX-License-Identifier: Apache-2.0
// The launcher's signals as events on its loop. Blocks them in the calling thread (and so in every
// thread made later); the destructor puts everything back.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// All that would end this process, and so end a job: INT, TERM and HUP, a limit of CPU time (XCPU),
// an alarm, ... Not those that are passed on or have another purpose here (QUIT, USR1, USR2, PIPE),
// nor those that this process ignores, as by nohup: while they are blocked, the kernel keeps even
// these. A fault of our own ends the process all the same.
sigset_t ending_signals();
bool ends_job(int signal);

// kInterrupted: one of them waits to be taken. For what takes long before a loop runs, where they
// are blocked already.
Status check_interrupted();

// One request to end often arrives as several signals: timeout(1) signals its child and then the
// child's whole group, a shell passes on the HUP of a closing terminal that its jobs had, too, a
// wrapper the Ctrl-C that the terminal sent to both.
class EndRequests {
 public:
  // Whether the request of an ending signal that arrives now has been made already. A key that
  // is pressed once more (both are from_terminal) is a request of its own, however soon it comes.
  bool is_repeat(bool from_terminal, Clock::time_point now);

 private:
  struct Request {
    Clock::time_point made;
    bool from_terminal;
  };
  std::optional<Request> last_;
};

class Signals {
 public:
  // ending_signals() end the job, once for each of EndRequests; QUIT asks where it stands; TSTP
  // CONT stop and resume it; USR1 USR2 are passed on; WINCH is passed on to a terminal. PIPE is
  // ignored: a closed reader is seen where it is written to.
  static Result<std::unique_ptr<Signals>> watch(os::EventLoop& loop,
                                                std::function<void(int signal)> handler);
  ~Signals();
  // Whether the one that the handler has now is a key of the terminal, which may show it (^C).
  bool from_terminal() const { return from_terminal_; }
  // Hands those that wait to the handler now, and not when the loop runs.
  void take();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  Signals(os::EventLoop& loop, std::function<void(int)> handler, os::Fd fd,
          const sigset_t& old_mask, const struct sigaction& old_pipe)
      : loop_(loop),
        handler_(std::move(handler)),
        fd_(std::move(fd)),
        old_mask_(old_mask),
        old_pipe_(old_pipe) {}

  os::EventLoop& loop_;
  std::function<void(int signal)> handler_;
  os::Fd fd_;
  EndRequests requests_;
  bool over_cpu_limit_ = false;
  bool from_terminal_ = false;
  sigset_t old_mask_;
  struct sigaction old_pipe_;  // what SIGPIPE did: a program that is executed inherits SIG_IGN
};

}  // namespace hora::launcher
