// SPDX-License-Identifier: Apache-2.0
// Ctrl-Z: the ranks of all hosts are stopped first, then this process, and all go on together when
// the shell's fg or bg continues it. On the event loop's thread.
#pragma once

#include <functional>

#include "launcher/fleet/fleet.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class Suspension {
 public:
  // `stop_this_process` returns when it was continued.
  Suspension(os::EventLoop& loop, Fleet& fleet, std::function<void()> stop_this_process)
      : loop_(loop), fleet_(fleet), stop_this_process_(std::move(stop_this_process)) {}
  ~Suspension() { loop_.cancel(timer_); }
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  // A second call while one is under way changes nothing.
  void begin();
  void on_host_suspended();
  // Continued, or asked to end, before this process has stopped: it must not stop any more. Nothing
  // would continue it a second time.
  void call_off();

 private:
  void stop();
  void resume_ranks();

  os::EventLoop& loop_;
  Fleet& fleet_;
  std::function<void()> stop_this_process_;
  os::EventLoop::TimerId timer_ = 0;  // while hosts are waited for
  int waiting_ = 0;
};

}  // namespace hora::launcher
