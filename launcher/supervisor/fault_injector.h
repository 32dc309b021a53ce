// SPDX-License-Identifier: Apache-2.0
// --chaos: sends ranks the signals of a schedule while the job runs. On the event loop's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "launcher/plan/chaos.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class FaultInjector {
 public:
  struct Handlers {
    std::function<bool(const ChaosStep& step)> signal;  // false: the rank or its host is gone
    std::function<void(const ChaosStep& step, std::chrono::milliseconds at, bool sent)> on_strike;
  };

  FaultInjector(os::EventLoop& loop, std::vector<ChaosStep> steps, Handlers handlers);
  ~FaultInjector() { stop(); }
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  void begin();  // all ranks run: the times of the schedule count from now
  void stop();   // the job is being ended: nothing more is sent
  std::size_t left() const { return steps_.size() - struck_; }  // whose time has not come

 private:
  void strike(const ChaosStep& step);

  os::EventLoop& loop_;
  std::vector<ChaosStep> steps_;
  Handlers handlers_;
  std::size_t struck_ = 0;
  Clock::time_point start_;
  std::vector<os::EventLoop::TimerId> timers_;
};

}  // namespace hora::launcher
