// SPDX-License-Identifier: Apache-2.0
// Keeps the ranks of a host on different cores where there is one for each, and spreads them evenly
// where there is not. The kernel likes to wake a rank on the core of the rank that wakes it. With a
// busy program on another core it leaves both there: each waits half of the time, so together they
// look like one program. From then on every operation costs a wake-up. A rank that finds on waking
// that another one shares its core therefore moves: it forbids itself the cores of the others,
// which makes the kernel move it at once, and then allows them again. It is not bound to anything
// afterwards. Where ranks outnumber the cores, they yield to each other, and an operation takes as
// long as the turns of the ranks on the fullest core. The kernel may leave three on one core and
// one on the other for long, because it avoids moving what has just run. So a rank that sees this
// moves likewise.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "rendezvous/base/time.h"

namespace hora::collectives {

// The CPU on which a rank was last seen, in shared memory: its number + 1; 0: not known, or not
// to be joined there.
using CpuOfRank = std::atomic<std::int32_t>;

// How often a rank may move. Where a move is followed by waits without sleep, it has helped;
// otherwise the next one has to wait twice as long.
class MoveTiming {
 public:
  // `successes`: of the rank's waits (Spinner::successes).
  bool is_due(Clock::time_point now, std::uint32_t successes);

 private:
  std::chrono::milliseconds pause_{1};
  Clock::time_point next_{};
  std::uint32_t successes_ = 0;  // at the last move
};

// How many ranks there are on each CPU.
class RanksOnCpus {
 public:
  // A CPU that does not exist, or that cpu_set_t has no room for, is left out.
  void add(int cpu) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) ++counts_[static_cast<std::size_t>(cpu)];
  }
  // The CPUs that have some, but at least two less than this one.
  cpu_set_t with_two_less_than(int cpu) const;

 private:
  std::array<std::uint16_t, CPU_SETSIZE> counts_{};
};

// One thread at a time.
class CoreSpread {
 public:
  // `cores`: the host has a core for each rank.
  void enable(bool cores) {
    keeps_apart_ = cores;
    evens_out_ = !cores;
  }

  // The calling thread, which is that of the rank whose CPU this is, is about to wake another one.
  void wakes(CpuOfRank& own) const {
    if (const int cpu = keeps_apart_ ? current_cpu() : -1; cpu >= 0) {
      own.store(cpu + 1, std::memory_order_relaxed);
    }
  }

  // The calling thread has slept until another rank woke it. `cpu_of(i)` is the CpuOfRank of each
  // of the `ranks` ranks, this one's included, which is number `own`.
  template <typename CpuOf>
  void woken(const CpuOf& cpu_of, int ranks, int own, std::uint32_t successes) {
    const int cpu = keeps_apart_ ? current_cpu() : -1;
    if (cpu < 0) return;
    cpu_of(own).store(cpu + 1, std::memory_order_relaxed);
    bool shared = false;
    for (int rank = 0; rank < ranks; ++rank) {
      shared |= rank != own && cpu_of(rank).load(std::memory_order_relaxed) == cpu + 1;
    }
    if (!shared || !timing_.is_due(Clock::now(), successes)) return;
    // No allocation: a waiting thread must not fail.
    cpu_set_t untaken;
    std::memset(&untaken, 0xff, sizeof untaken);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int32_t seen = cpu_of(rank).load(std::memory_order_relaxed);
      if (seen > 0) CPU_CLR(seen - 1, &untaken);
    }
    keeps_apart_ = move_to(untaken);
    cpu_of(own).store(current_cpu() + 1, std::memory_order_relaxed);
  }

  // The calling thread has waited; `successes` and `losses` are those of the rank's waits. With
  // fewer cores than ranks, it moves to a core that has two ranks less than its own. Only where
  // they lose nothing: a program that never waits takes the core for milliseconds.
  template <typename CpuOf>
  void waited(const CpuOf& cpu_of, int ranks, int own, std::uint32_t successes,
              std::uint32_t losses) {
    if (!evens_out_ || ++waits_ % kLookEvery != 0) return;
    const bool undisturbed = std::exchange(losses_, losses) == losses;
    const int cpu = undisturbed ? current_cpu() : -1;
    cpu_of(own).store(cpu + 1, std::memory_order_relaxed);
    if (cpu < 0) return;
    RanksOnCpus there;
    for (int rank = 0; rank < ranks; ++rank) {
      there.add(cpu_of(rank).load(std::memory_order_relaxed) - 1);
    }
    const cpu_set_t roomier = there.with_two_less_than(cpu);
    if (CPU_COUNT(&roomier) == 0 || !timing_.is_due(Clock::now(), successes)) return;
    evens_out_ = move_to(roomier);
    cpu_of(own).store(current_cpu() + 1, std::memory_order_relaxed);
  }

  // Whether all ranks that awaited(rank) is true of are known to be on other CPUs than number
  // `own`.
  template <typename CpuOf, typename Awaited>
  static bool are_elsewhere(const CpuOf& cpu_of, int ranks, int own, const Awaited& awaited) {
    const std::int32_t here = cpu_of(own).load(std::memory_order_relaxed);
    if (here == 0) return false;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int32_t there = cpu_of(rank).load(std::memory_order_relaxed);
      if ((there == 0 || there == here) && awaited(rank)) return false;
    }
    return true;
  }

 private:
  // A look takes a cache line from each other rank.
  static constexpr std::uint32_t kLookEvery = 64;

  static int current_cpu();
  // Moves the calling thread to one of these CPUs, if it may use any. False: it may not move.
  static bool move_to(const cpu_set_t& cpus);

  bool keeps_apart_ = false;
  bool evens_out_ = false;
  MoveTiming timing_;
  std::uint32_t waits_ = 0;
  std::uint32_t losses_ = 0;
};

}  // namespace hora::collectives
