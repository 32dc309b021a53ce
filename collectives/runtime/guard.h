// Watches the control connections while the runtime's own thread may be blocked in a collective,
// and interrupts it when a peer has gone. Sleeps otherwise.
//
// With signs of life it also finds the rank whose process is stopped, or whose host hangs: its
// connection stays, and the collective waits for it. Each guard answers by itself, whatever its
// runtime is doing, so a step that is only slow is left alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/control/life_signs.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

class Guard {
 public:
  // Called once at most, on the guard's thread: with no ranks when the other end of a connection is
  // gone, else with those that gave no sign of life while a step lasted longer than the limit.
  using OnBreak = std::function<void(const std::vector<int>& silent)>;

  // The descriptors must stay open until stop(). Without `signs` there is no limit.
  Guard(std::vector<int> fds, OnBreak on_break, std::optional<LifeSigns> signs = std::nullopt,
        std::chrono::milliseconds limit = {}, int rank = 0);
  ~Guard() { stop(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // The thread that drives: what it does now waits for others.
  void step_begins() {
    if (signs_) step_since_.store(Clock::now().time_since_epoch().count());
  }
  void step_ends() {
    if (signs_) step_since_.store(0);
  }

  // From now on nothing is called. Idempotent.
  void stop();

 private:
  void watch();
  std::vector<int> look(Clock::time_point now);

  std::vector<int> fds_;
  OnBreak on_break_;
  std::optional<LifeSigns> signs_;
  std::chrono::milliseconds limit_;
  int rank_;
  std::atomic<std::int64_t> step_since_{0};  // Clock's count; 0: no step
  Clock::time_point next_look_;
  os::Fd stop_;
  std::thread thread_;
};

}  // namespace hora::collectives
