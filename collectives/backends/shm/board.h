// SPDX-License-Identifier: Apache-2.0
// How the ranks of a host wait for each other: every rank has counters in shared memory that only
// it advances and the others watch.
//
// A waiting rank spins for a while if the host has a core for each rank, and yields its core a few
// times otherwise; then it sleeps on a futex. It publishes what it waits for, so that only the rank
// that makes it true wakes it, once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/memory/core_spread.h"
#include "collectives/memory/futex.h"

namespace hora::collectives {

// In shared memory, which starts zeroed. Counters of different ranks never share a cache line.
struct alignas(128) BoardLine {
  std::atomic<std::uint64_t> counters[4];
  alignas(64) std::atomic<std::uint32_t> asleep;  // 1: this rank sleeps and needs to be woken
  // The condition that it waits for: this counter, of this rank (-1: of all), reaches this value.
  std::atomic<std::int32_t> wanted_counter;
  std::atomic<std::int32_t> wanted_rank;
  std::atomic<std::uint64_t> wanted_value;
  CpuOfRank cpu;  // where it last slept or woke another rank
};

class Board {
 public:
  // `lines` holds one line for each rank of the set, in shared memory that outlives the board.
  void attach(BoardLine* lines, int index, int size, bool spin) {
    lines_ = lines;
    index_ = index;
    size_ = size;
    spinner_.enable(spin);
    spread_.enable(spin);
  }

  // Sets this rank's counter to `value`; a reader of the value also sees everything written before.
  void advance(int counter, std::uint64_t value);
  // Waits until the counter of all ranks (or of one) is at least `value`. False: aborted.
  bool wait_all(int counter, std::uint64_t value) { return wait(counter, -1, value); }
  bool wait_one(int counter, int rank, std::uint64_t value) { return wait(counter, rank, value); }

  // Ends this rank's wait and every later one. Any thread may call it.
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }

 private:
  bool reached(int counter, int rank, std::uint64_t value) const;
  bool wait(int counter, int rank, std::uint64_t value);

  BoardLine* lines_ = nullptr;
  int index_ = 0;
  int size_ = 0;
  Spinner spinner_;
  CoreSpread spread_;
  std::atomic<bool> aborted_{false};
};

}  // namespace hora::collectives
