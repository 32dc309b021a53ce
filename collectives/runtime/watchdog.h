// Watches the control connections while the runtime's own thread may be blocked in a collective,
// and interrupts it when a peer has gone. Sleeps otherwise.
//
// With signs of life it also finds the rank whose process is stopped, or whose host hangs: its
// connection stays, and others wait for it. Each watchdog answers by itself, whatever its runtime
// is doing and whether its rank computes, so who is only slow is left alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/control/heartbeat.h"
#include "collectives/runtime/process_set.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

class Watchdog {
 public:
  // Called once at most, on the watchdog's thread: with no ranks when the other end of a connection
  // is gone, else with those that somebody waits for and that have given no sign of life for longer
  // than the limit.
  using OnBreak = std::function<void(const std::vector<int>& silent)>;
  struct Watch {
    Heartbeat signs;
    std::chrono::milliseconds limit;
    int rank;
    const SetTable* sets;
  };

  // The descriptors must stay open until stop(), and so must the table of sets.
  static Result<std::unique_ptr<Watchdog>> post(std::vector<int> fds, OnBreak on_break,
                                                std::optional<Watch> watch = std::nullopt);
  ~Watchdog() { stop(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Whether it misses anybody; else it need not be told who is waited for.
  bool watches() const { return watch_.has_value(); }
  // The thread that drives: the process set in which it waits for others; Heartbeat::kNowhere.
  void waits_in(std::int32_t set) { waits_in_.store(set, std::memory_order_relaxed); }

  // Who does not answer at the moment. Any thread.
  std::vector<int> silent() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return silent_;
  }

  // From now on nothing is called. Idempotent.
  void stop();

 private:
  Watchdog(std::vector<int> fds, OnBreak on_break, std::optional<Watch> watch);
  void run();
  std::vector<int> look(Clock::time_point now);
  bool is_waited_for(int rank, Clock::time_point now) const;

  std::vector<int> fds_;
  OnBreak on_break_;
  std::optional<Watch> watch_;
  std::atomic<std::int32_t> waits_in_{Heartbeat::kNowhere};
  mutable std::mutex mutex_;
  std::vector<int> silent_;  // guarded by it
  Clock::time_point next_look_;
  os::Fd stop_;
  std::thread thread_;
};

}  // namespace hora::collectives
