// SPDX-License-Identifier: Apache-2.0
// The time limit of one stage of a connection. Lives on one event loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class StageLimit {
 public:
  explicit StageLimit(os::EventLoop& loop) : loop_(loop) {}
  ~StageLimit() { cancel(); }
  StageLimit(const StageLimit&) = delete;
  StageLimit& operator=(const StageLimit&) = delete;

  // Replaces the limit of the stage before. `over` is called once, unless the limit is cancelled.
  void set(Milliseconds limit, std::function<void()> over) {
    cancel();
    began_ = Clock::now();
    timer_ = loop_.call_after(limit, [this, over = std::move(over)] {
      timer_ = 0;
      over();
    });
  }
  void cancel() { loop_.cancel(std::exchange(timer_, 0)); }

  // Since set(): "3.2 s".
  std::string waited() const {
    const auto ms = std::chrono::duration_cast<Milliseconds>(Clock::now() - began_).count();
    return ms < 10'000 ? std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s"
                       : std::to_string((ms + 500) / 1000) + " s";
  }

 private:
  os::EventLoop& loop_;
  Clock::time_point began_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
