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

// Waits for another core by looking again and again, for a while: longer than it takes to be woken.
// Where that is in vain, because the cores have other work or the other rank has, the while becomes
// shorter; each success makes it longer again.
class Spinner {
 public:
  // Where there are fewer cores than ranks it only looks once.
  void enable(bool enabled) { patience_ = enabled ? kMost : Patience::zero(); }

  // Answers what `condition` said last.
  template <typename Condition>
  bool until(const Condition& condition) {
    if (condition()) return true;
    if (patience_ == Patience::zero()) return false;
    const auto end = Clock::now() + patience_;
    do {
      for (int i = 0; i < 16; ++i) {
        if (!condition()) {
          relax();
          continue;
        }
        patience_ = std::min(kMost, 2 * patience_);
        return true;
      }
    } while (Clock::now() < end);
    patience_ = std::max(kLeast, patience_ / 2);
    return false;
  }

 private:
  using Patience = std::chrono::nanoseconds;
  static constexpr Patience kMost{50'000};
  static constexpr Patience kLeast{1'000};
  Patience patience_ = Patience::zero();
};

}  // namespace hora::collectives
