// SPDX-License-Identifier: Apache-2.0
#include "collectives/memory/core_spread.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// A program takes a core away for some milliseconds at a time, so ranks meet on one core that
// often.
constexpr std::chrono::milliseconds kShortestPause{1};
constexpr std::chrono::milliseconds kLongestPause{64};
// A move costs as much as some wake-ups, and has to spare more of them than that.
constexpr std::uint32_t kWorthIt = 1000;

}  // namespace

bool MoveTiming::is_due(Clock::time_point now, std::uint32_t successes) {
  if (now < next_) return false;
  pause_ =
      successes - successes_ >= kWorthIt ? kShortestPause : std::min(2 * pause_, kLongestPause);
  next_ = now + pause_;
  successes_ = successes;
  return true;
}

cpu_set_t RanksOnCpus::with_two_less_than(int cpu) const {
  cpu_set_t found;
  CPU_ZERO(&found);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return found;
  const int here = counts_[static_cast<std::size_t>(cpu)];
  for (std::size_t other = 0; other < counts_.size(); ++other) {
    if (counts_[other] > 0 && counts_[other] + 2 <= here) CPU_SET(other, &found);
  }
  return found;
}

int CoreSpread::current_cpu() { return sched_getcpu(); }

bool CoreSpread::move_to(const cpu_set_t& cpus) {
  cpu_set_t allowed;
  // It fails on hosts with more than CPU_SETSIZE (1,024) CPUs, where ranks stay where they are.
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t target;
  CPU_AND(&target, &allowed, &cpus);
  // None of them, for now: the other ranks may move meanwhile.
  if (CPU_COUNT(&target) == 0) return true;
  if (sched_setaffinity(0, sizeof target, &target) != 0) return false;
  if (sched_setaffinity(0, sizeof allowed, &allowed) == 0) return true;
  os::log_warn("runtime",
               std::string("a thread stays bound to some of its CPUs: sched_setaffinity: ") +
                   std::strerror(errno));
  return false;
}

}  // namespace hora::collectives
