// SPDX-License-Identifier: Apache-2.0
// Keeps the ranks of a host on different cores where there is one for each.
//
// The kernel likes to wake a rank on the core of the rank that wakes it. Beside a busy program on
// another core it leaves both there: each waits half of the time, so together they look like one
// program. From then on every operation costs a wake-up. A rank that finds on waking that another
// one shares its core therefore moves: it forbids itself the cores of the others, which makes the
// kernel move it at once, and then allows them again. It is not bound to anything afterwards.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

// The CPU on which a rank was last seen, in shared memory: its number + 1; 0: not known.
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

// One thread at a time.
class CoreSpread {
 public:
  // `cores`: the host has a core for each rank.
  void enable(bool cores) { enabled_ = cores; }

  // The calling thread, which is that of the rank whose CPU this is, is about to wake another one.
  void wakes(CpuOfRank& own) const {
    if (const int cpu = enabled_ ? current_cpu() : -1; cpu >= 0) {
      own.store(cpu + 1, std::memory_order_relaxed);
    }
  }

  // The calling thread has slept until another rank woke it. `cpu_of(i)` is the CpuOfRank of each
  // of the `ranks` ranks, this one's included, which is number `own`.
  template <typename CpuOf>
  void woken(const CpuOf& cpu_of, int ranks, int own, std::uint32_t successes) {
    const int cpu = enabled_ ? current_cpu() : -1;
    if (cpu < 0) return;
    cpu_of(own).store(cpu + 1, std::memory_order_relaxed);
    bool shared = false;
    for (int rank = 0; rank < ranks; ++rank) {
      shared |= rank != own && cpu_of(rank).load(std::memory_order_relaxed) == cpu + 1;
    }
    if (!shared || !timing_.is_due(Clock::now(), successes)) return;
    // No allocation: whoever waits must not fail.
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int32_t seen = cpu_of(rank).load(std::memory_order_relaxed);
      if (seen > 0) CPU_SET(seen - 1, &taken);
    }
    enabled_ = leave_cpus(taken);
    cpu_of(own).store(current_cpu() + 1, std::memory_order_relaxed);
  }

 private:
  static int current_cpu();
  // Moves the calling thread to one of its other CPUs, if it has any. False: it may not.
  static bool leave_cpus(const cpu_set_t& taken);

  bool enabled_ = false;
  MoveTiming timing_;
};

}  // namespace hora::collectives
