// SPDX-License-Identifier: Apache-2.0
// The end of another process, by pidfd where the kernel has it.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>

#include <functional>
#include <memory>

#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

// Numbers of system calls for C libraries that are older than the kernels that have them; the same
// on every architecture. Callers handle ENOSYS.

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424  // Linux 5.1
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // Linux 5.3
#endif
#ifndef SYS_close_range
#define SYS_close_range 436  // Linux 5.9
#endif

namespace hora::os {

// The end of a process that is not a child of ours.

class ProcessEnd {
 public:
  // Calls `ended` once, from the loop, when process `pid` has ended; soon, where it has already.
  static Result<std::unique_ptr<ProcessEnd>> watch(EventLoop& loop, pid_t pid,
                                                   std::function<void()> ended);
  ~ProcessEnd();
  ProcessEnd(const ProcessEnd&) = delete;
  ProcessEnd& operator=(const ProcessEnd&) = delete;

 private:
  ProcessEnd(EventLoop& loop, pid_t pid, std::function<void()> ended);
  void look();
  void notify();

  EventLoop& loop_;
  pid_t pid_;
  bool is_parent_;
  std::function<void()> ended_;
  Fd pidfd_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::os
