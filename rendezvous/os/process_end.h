// SPDX-License-Identifier: Apache-2.0
// The end of a process that is no child of ours.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::os {

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
  void tell();

  EventLoop& loop_;
  pid_t pid_;
  bool is_parent_;
  std::function<void()> ended_;
  Fd pidfd_;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::os
