// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/fault_injector.h"

#include <utility>

namespace hora::launcher {

FaultInjector::FaultInjector(os::EventLoop& loop, std::vector<ChaosStep> steps, Handlers handlers)
    : loop_(loop), steps_(std::move(steps)), handlers_(std::move(handlers)) {}

void FaultInjector::begin() {
  start_ = Clock::now();
  for (const ChaosStep& step : steps_) {
    timers_.push_back(loop_.call_at(start_ + step.at, [this, &step] { strike(step); }));
  }
}

void FaultInjector::stop() {
  for (const auto timer : timers_) loop_.cancel(timer);
  timers_.clear();
}

void FaultInjector::strike(const ChaosStep& step) {
  ++struck_;
  const auto at = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  handlers_.on_strike(step, at, handlers_.signal(step));
}

}  // namespace hora::launcher
