// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word of memory until another thread (or, in shared memory, another process) changes
// it and wakes the sleepers.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

// Returns when another thread wakes the word, when it no longer holds `value`, or at the deadline;
// also spuriously, so the caller has to look again.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Deadline deadline);
void wake_all(std::atomic<std::uint32_t>& word);

// Whether each of `local_ranks` processes can have a core of its own here.
bool cores_for(int local_ranks);

// One turn of a loop that waits for another core: saves power and frees the sibling hyperthread.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // ISB takes about as long as PAUSE on x86-64. YIELD does nothing on most processors: the loop
  // would look, and take the cache line, without a break.
  asm volatile("isb");
#endif
}

// Yields this core to another thread.
void give_way();

// Waits for another rank by polling for a while that is longer than a wake-up takes. Where polling
// fails, because the cores or the other rank have other work, the while becomes shorter; each
// success makes it longer again. A while shorter than a wake-up can never succeed among ranks that
// all sleep, so a long one is tried now and then.
//
// On a host with fewer cores than ranks, the awaited rank may need this core: the spinner yields it
// between looks and looks only a few times. One thread at a time.
class Spinner {
 public:
  // `cores`: the host has a core for each rank.
  void enable(bool cores) { gives_way_ = !cores; }

  // Returns the last value of `condition`.
  template <typename Condition>
  bool until(const Condition& condition) {
    return condition() || (gives_way_ ? give_turns(condition) : look_out(condition));
  }

 private:
  template <typename Condition>
  bool look_out(const Condition& condition) {
    auto end = Deadline::max();
    do {
      for (int i = 0; i < 16; ++i) {
        relax();
        if (!condition()) continue;
        patience_ = std::min(kMost, 2 * patience_);
        trial_after_ = kFirstTrial;
        return true;
      }
      const auto now = Clock::now();  // after the first looks: the clock costs as much as several
      if (end == Deadline::max()) end = now + patience_;
      if (now >= end) break;
    } while (true);
    patience_ = std::max(kLeast, patience_ / 2);
    if (patience_ == kLeast && trial_is_due()) patience_ = kMost;
    return false;
  }

  template <typename Condition>
  bool give_turns(const Condition& condition) {
    for (int turn = 0; turn < turns_; ++turn) {
      give_way();
      if (!condition()) continue;
      turns_ = std::min(kMostTurns, turns_ + 1);
      trial_after_ = kFirstTrial;
      return true;
    }
    turns_ = std::max(0, turns_ - kMostTurns / 2);
    if (turns_ == 0 && trial_is_due()) turns_ = kMostTurns;
    return false;
  }

  bool trial_is_due() {
    if (++short_waits_ < trial_after_) return false;
    short_waits_ = 0;
    trial_after_ = std::min(2 * trial_after_, kLastTrial);
    return true;
  }

  using Patience = std::chrono::nanoseconds;
  static constexpr Patience kMost{50'000};
  static constexpr Patience kLeast{1'000};
  static constexpr int kMostTurns = 8;
  static constexpr int kFirstTrial = 16;
  static constexpr int kLastTrial = 1024;
  bool gives_way_ = true;
  Patience patience_ = kMost;
  int turns_ = kMostTurns;
  int short_waits_ = 0;            // failed waits since the last trial
  int trial_after_ = kFirstTrial;  // after how many of them to try a long one
};

}  // namespace hora::collectives
