// How the ranks of a host wait for each other: every rank has counters in shared memory that only
// it advances, and that the others watch.
//
// A waiting rank spins for a while where there is a core for each rank; then, or at once where
// there is not, it sleeps on a futex. Whoever advances a counter wakes those who sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/backends/backend.h"

namespace hora::collectives {

// In shared memory, zeroed at first. Counters of different ranks never share a cache line.
struct alignas(128) BoardLine {
  std::atomic<std::uint64_t> counters[4];
  alignas(64) std::atomic<std::uint32_t> asleep;  // 1: this rank sleeps, wake it
};

class Board {
 public:
  // `lines`: one for each rank of the set, in shared memory.
  void attach(BoardLine* lines, int index, int size, bool spin) {
    lines_ = lines;
    index_ = index;
    size_ = size;
    spin_ = spin;
  }

  // This rank's counter becomes `value`; what was written before is visible to whoever sees it.
  void advance(int counter, std::uint64_t value);
  // Until the counter of all ranks (or of one) is at least `value`. False: aborted.
  bool wait_all(int counter, std::uint64_t value);
  bool wait_one(int counter, int rank, std::uint64_t value);

  // Any thread. Ends the wait of this rank, and every later one.
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }

 private:
  template <typename Condition>
  bool wait_until(const Condition& condition);

  BoardLine* lines_ = nullptr;
  int index_ = 0;
  int size_ = 0;
  bool spin_ = false;
  std::atomic<bool> aborted_{false};
};

// Whether each of `local_ranks` processes can have a core of its own here.
bool cores_for(int local_ranks);

}  // namespace hora::collectives
