// SPDX-License-Identifier: Apache-2.0
// A child process with its stdin, stdout and stderr in our hands. The destructor kills it, unless
// it was reaped, and all of its process group; to end it in order, close its stdin and wait before.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/guard.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class PipedChild {
 public:
  // One socket for both stdin and stdout, when `one_socket` (a proxy); pipes otherwise.
  static Result<PipedChild> start(const std::vector<std::string>& argv, bool one_socket = false);
  // One that outlives a launcher that is killed by force: it has `timeout` to end by itself, and
  // then a guard ends it (launcher/process/guard.h).
  static Result<PipedChild> start_guarded(const std::vector<std::string>& argv,
                                          std::chrono::milliseconds timeout);
  // One that leaves no process: with it, and with a launcher that is killed by force, all that it
  // has started ends (confine_program()). Its variables have a mark, by which end() finds them if
  // the guard was killed.
  static Result<PipedChild> start_confined(const std::vector<std::string>& argv);
  PipedChild() = default;
  PipedChild(PipedChild&& other) noexcept;
  PipedChild& operator=(PipedChild&& other) noexcept;
  ~PipedChild();

  os::Fd stdin_fd;  // non-blocking, as the others; with `one_socket` both ways
  os::Fd stdout_fd;
  os::Fd stderr_fd;

  pid_t pid() const { return pid_; }  // and its process group
  // Readable once the process has ended; -1 on a kernel without pidfds.
  int ended_fd() const { return pidfd_.get(); }
  // How it ended, when it has: 0..255, or 128 + signal. Reaps it.
  std::optional<int> try_wait();
  // The same without reaping it: the remaining processes of its process group still end with us.
  std::optional<int> ended() const;
  void ask_to_end(int signal = SIGTERM);  // to its process group
  // It goes on without us. Only for one with a guard, which sees to it.
  void leave();

 private:
  using Starter = std::function<Guarded(const SpawnRequest&, std::array<int, 2> our_ends)>;
  static Result<PipedChild> start_by(const Starter& starter, const std::vector<std::string>& argv,
                                     bool one_socket = false, const std::string& mark = {});
  void end();
  void await_sweep() const;
  pid_t pid_ = -1;
  std::optional<int> status_;
  os::Fd pidfd_;
  os::Fd lifeline_;   // of the guard, whose pid is pid_ then
  std::string mark_;  // "NAME=VALUE" of one that is confined; else empty
};

}  // namespace hora::launcher
