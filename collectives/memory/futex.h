// Sleeping on a word of memory until another thread or, in shared memory, another process changes
// it and says so.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

// Returns when the word is woken, no longer holds `value`, or the deadline has come; or for no
// reason at all: look again.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Deadline deadline);
void wake_all(std::atomic<std::uint32_t>& word);

// Whether each of `local_ranks` processes can have a core of its own here.
bool cores_for(int local_ranks);

// One turn of a loop that waits for another core.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Lets whoever else waits for this core have it.
void give_way();

// Waits for another rank by looking again and again, for a while: longer than it takes to be woken.
// Where that is in vain, because the cores have other work or the other rank has, the while becomes
// shorter; each success makes it longer again. A while that is shorter than being woken takes can
// never succeed among ranks that all sleep: now and then a long one is tried.
//
// Where there are fewer cores than ranks, whoever is waited for may need this one: between looks it
// is given away, and a few looks are all.
class Spinner {
 public:
  // `cores`: there is one for each rank.
  void enable(bool cores) { gives_way_ = !cores; }

  // Answers what `condition` said last.
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
      const auto now = Clock::now();  // after the first looks: it takes as long as some of them
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
  int short_waits_ = 0;            // since the last trial
  int trial_after_ = kFirstTrial;  // so many of them
};

}  // namespace hora::collectives
