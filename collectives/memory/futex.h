// SPDX-License-Identifier: Apache-2.0
// Waiting and waking between processes by futex.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

// The system call futex(2), which the C library does not wrap. Returns -1 with errno on failure.

inline long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
                  const timespec* timeout) {
  static_assert(sizeof(word) == 4);
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                 nullptr, 0);
}

// Sleeping on a word of memory until another thread (or, in shared memory, another process) changes
// it and wakes the sleepers.

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

struct ThisCore {
  static Clock::time_point now() { return Clock::now(); }
  static void give_way() { collectives::give_way(); }
};

// How much time a rank may poll without result: a sixteenth of the time that passes, and kBurst
// long polls at once. A rank that another program has taken off its core costs the others one long
// poll in several milliseconds, so they go on polling; a rank that is late each time does not keep
// a core busy.
class PollBudget {
 public:
  static constexpr std::chrono::nanoseconds kLongPoll{50'000};  // longer than a wake-up takes

  bool covers_a_long_poll(Clock::time_point now) const { return paid_at_ <= now + kBurst * kPrice; }
  // Useless yields leave the core to others, and their cost comes in long pieces: another program's
  // turn, of some milliseconds.
  bool covers_yields(Clock::time_point now) const { return paid_at_ <= now + kLongestTurn; }
  void spend_a_long_poll(Clock::time_point now) { spend(now, kLongPoll); }
  void spend(Clock::time_point now, Clock::duration time) {
    paid_at_ = std::max(paid_at_, now) + kPriceOf1 * time;
  }

 private:
  static constexpr int kBurst = 4;
  static constexpr int kPriceOf1 = 16;
  static constexpr std::chrono::nanoseconds kPrice = kPriceOf1 * kLongPoll;
  static constexpr std::chrono::milliseconds kLongestTurn{kPriceOf1 * 4};
  Clock::time_point paid_at_{};  // when all useless polls are paid for
};

// Waits for another rank by polling for longer than a wake-up takes, as long as the budget covers
// it. Ranks that only sleep and wake each other get back to polling as soon as one long poll
// succeeds: it lasts until the other rank has woken up, and from then on both are awake.
//
// On a host with fewer cores than ranks, the awaited rank may need this core: the spinner yields it
// between looks, at once unless the rank is known to be elsewhere, and counts of a turn only its
// own part. If it gets the core back late, another program had it, and not the awaited rank: the
// time that goes so is limited by the budget, too. One thread at a time. `Core`: the clock and the
// core of this thread.
template <typename Core>
class BasicSpinner {
 public:
  // `cores`: the host has a core for each rank.
  void enable(bool cores) { gives_way_ = !cores; }
  bool gives_way() const { return gives_way_; }

  // Returns the last value of `condition`.
  template <typename Condition>
  bool until(const Condition& condition) {
    return until(condition, [] { return false; });
  }
  // `elsewhere`: whether all that is awaited is on other cores and can come without this one.
  template <typename Condition, typename Elsewhere>
  bool until(const Condition& condition, const Elsewhere& elsewhere) {
    if (condition()) return true;
    const std::uint32_t before = successes_;
    const bool came = gives_way_ ? give_turns(condition, elsewhere) : look_out(condition);
    if (successes_ == before) ++losses_;
    return came;
  }

  // How many waits have succeeded without sleep, but not at once.
  std::uint32_t successes() const { return successes_; }
  // How many have not, or have lost the core to another program for a while.
  std::uint32_t losses() const { return losses_; }

 private:
  template <typename Condition>
  bool look_out(const Condition& condition) {
    // The first looks come before the clock, which costs as much as several.
    if (look(condition)) return true;
    const auto begin = Core::now();
    if (!budget_.covers_a_long_poll(begin)) return false;
    do {
      if (look(condition)) return true;
    } while (Core::now() < begin + PollBudget::kLongPoll);
    budget_.spend_a_long_poll(begin);
    return false;
  }

  template <typename Condition>
  bool look(const Condition& condition) {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (!condition()) continue;
      ++successes_;
      return true;
    }
    return false;
  }

  template <typename Condition, typename Elsewhere>
  bool give_turns(const Condition& condition, const Elsewhere& elsewhere) {
    const auto begin = Core::now();
    if (!budget_.covers_yields(begin)) return false;
    Clock::duration own{0};
    for (auto turn = begin; own < PollBudget::kLongPoll;) {
      bool came = false;
      for (int looks = 0; !came && looks < kLooksElsewhere && elsewhere(); ++looks) {
        relax();
        came = condition();
      }
      if (!came) {
        Core::give_way();
        came = condition();
      }
      const auto now = Core::now();
      if (now - turn > kLongTurn) {
        budget_.spend(now, now - turn);
        return came;
      }
      if (came) {
        ++successes_;
        return true;
      }
      own += std::min<Clock::duration>(now - turn, kSwitch);
      turn = now;
    }
    budget_.spend_a_long_poll(Core::now());
    return false;
  }

  // About as long as others take to have a turn.
  static constexpr int kLooksElsewhere = 64;
  // Longer than it takes some tens of ranks to do what little they have to, shorter than the
  // kernel lets a program run that does not wait.
  static constexpr std::chrono::microseconds kLongTurn{200};
  // This rank's own time in a turn if others have the core meanwhile.
  static constexpr std::chrono::microseconds kSwitch{2};
  bool gives_way_ = true;
  PollBudget budget_;
  std::uint32_t successes_ = 0;
  std::uint32_t losses_ = 0;
};

using Spinner = BasicSpinner<ThisCore>;

}  // namespace hora::collectives
