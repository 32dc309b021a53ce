// SPDX-License-Identifier: Apache-2.0
// Watches the control connections while the runtime's own thread may be blocked in a collective,
// and interrupts it when a peer has gone. Sleeps otherwise. With signs of life it also finds the
// rank whose process is stopped, or whose host hangs: its connection stays, and others wait for it.
// Each watchdog answers by itself, whatever its runtime is doing and whether its rank computes, so
// a slow rank is left alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
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
  // is gone, else with those that others wait for and that have given no sign of life for longer
  // than the limit.
  using OnBreak = std::function<void(const std::vector<int>& silent)>;
  // A rank that gives no sign of life, and what others wait for it in.
  struct Silence {
    int rank;
    Wait wait;
  };
  struct Watch {
    Heartbeat signs;
    std::chrono::milliseconds limit;  // 0: none
    int rank;
    const SetTable* sets;
    std::chrono::milliseconds warning{0};  // 0: none
    // On the watchdog's thread: the ranks that were awaited and silent for longer than `warning`,
    // and that the stall inspector does not see; again after each such time.
    std::function<void(const std::vector<Silence>&)> on_silence;
  };

  // The descriptors must stay open until stop(), and so must the table of sets.
  static Result<std::unique_ptr<Watchdog>> post(std::vector<int> fds, OnBreak on_break,
                                                std::optional<Watch> watch = std::nullopt);
  ~Watchdog() { stop(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Whether it misses any rank; else it need not know which are awaited.
  bool watches() const { return watch_.has_value(); }
  // The thread that drives: the process set in which it waits for what others have not submitted;
  // Wait::kNowhere.
  void waits_in(std::int32_t set) { waits_.store(pack(set, false), std::memory_order_relaxed); }
  // The same: it is in the middle of something, which is known by a number.
  void in_step(std::uint64_t number, std::int32_t set, std::string_view what);
  bool is_in_step(std::uint64_t number) const {
    return (waits_.load(std::memory_order_relaxed) & 1) != 0 && number == step_;
  }
  // The same: something that it waited for has ended.
  void goes_on() {
    ended_.store(ended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // The ranks that do not answer at the moment. Any thread.
  std::vector<int> silent() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return silent_;
  }

  // From now on nothing is called. Idempotent.
  void stop();

 private:
  Watchdog(std::vector<int> fds, OnBreak on_break, std::optional<Watch> watch);
  static constexpr std::int64_t pack(std::int32_t set, bool in_step) {
    return std::int64_t{set} * 2 + (in_step ? 1 : 0);
  }

  void run();
  std::vector<int> look(Clock::time_point now);
  std::vector<int> silent_for(std::chrono::milliseconds time, Clock::time_point now) const;
  Wait own_wait(Clock::time_point now);
  bool has(std::int32_t set, int rank) const;
  bool is_waited_for(int rank, Clock::time_point now) const;
  void warn(Clock::time_point now);
  std::vector<Silence> find_silent(Clock::time_point now, const Wait& own) const;
  bool has_turn(const Wait& own, std::size_t turn) const;

  std::vector<int> fds_;
  OnBreak on_break_;
  std::optional<Watch> watch_;
  std::chrono::milliseconds look_every_;
  std::chrono::milliseconds answer_timeout_;
  std::atomic<std::int64_t> waits_{pack(Wait::kNowhere, false)};
  std::atomic<std::uint64_t> ended_{0};
  std::uint64_t step_ = 0;  // of the thread that drives
  mutable std::mutex mutex_;
  std::vector<int> silent_;  // guarded by it
  std::string what_;         // the same: the step
  // Since when this rank has waited for one and the same thing.
  std::int64_t seen_waits_ = pack(Wait::kNowhere, false);
  std::uint64_t seen_ended_ = 0;
  Clock::time_point stuck_since_;
  Clock::time_point next_look_;
  Clock::time_point next_warning_;
  std::size_t warnings_ = 0;
  os::Fd stop_;
  std::thread thread_;
};

}  // namespace hora::collectives
