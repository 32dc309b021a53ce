// How the ranks of a host wait for each other: every rank has counters in shared memory that only
// it advances, and that the others watch.
//
// A waiting rank spins for a while where there is a core for each rank, and gives its core away a
// few times where there is not; then it sleeps on a futex. It says what it waits for, so that it is
// woken once, by the rank that makes it true.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/memory/futex.h"

namespace hora::collectives {

// In shared memory, zeroed at first. Counters of different ranks never share a cache line.
struct alignas(128) BoardLine {
  std::atomic<std::uint64_t> counters[4];
  alignas(64) std::atomic<std::uint32_t> asleep;  // 1: this rank sleeps, wake it
  // What it waits for: that counter, of that rank (-1: of all), to be at least that value.
  std::atomic<std::int32_t> wanted_counter;
  std::atomic<std::int32_t> wanted_rank;
  std::atomic<std::uint64_t> wanted_value;
};

class Board {
 public:
  // `lines`: one for each rank of the set, in shared memory.
  void attach(BoardLine* lines, int index, int size, bool spin) {
    lines_ = lines;
    index_ = index;
    size_ = size;
    spinner_.enable(spin);
  }

  // This rank's counter becomes `value`; what was written before is visible to whoever sees it.
  void advance(int counter, std::uint64_t value);
  // Until the counter of all ranks (or of one) is at least `value`. False: aborted.
  bool wait_all(int counter, std::uint64_t value) { return wait(counter, -1, value); }
  bool wait_one(int counter, int rank, std::uint64_t value) { return wait(counter, rank, value); }

  // Any thread. Ends the wait of this rank, and every later one.
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }

 private:
  bool reached(int counter, int rank, std::uint64_t value) const;
  bool wait(int counter, int rank, std::uint64_t value);

  BoardLine* lines_ = nullptr;
  int index_ = 0;
  int size_ = 0;
  Spinner spinner_;
  std::atomic<bool> aborted_{false};
};

}  // namespace hora::collectives
