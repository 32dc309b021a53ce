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

int CoreSpread::current_cpu() { return sched_getcpu(); }

bool CoreSpread::leave_cpus(const cpu_set_t& taken) {
  cpu_set_t allowed;
  // It fails on hosts with more than CPU_SETSIZE (1,024) CPUs, where ranks stay where they are.
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t rest;
  CPU_AND(&rest, &allowed, &taken);
  CPU_XOR(&rest, &allowed, &rest);
  // All of them are taken: the others may leave meanwhile.
  if (CPU_COUNT(&rest) == 0) return true;
  if (sched_setaffinity(0, sizeof rest, &rest) != 0) return false;
  if (sched_setaffinity(0, sizeof allowed, &allowed) == 0) return true;
  os::log_warn("runtime",
               std::string("a thread stays bound to some of its CPUs: sched_setaffinity: ") +
                   std::strerror(errno));
  return false;
}

}  // namespace hora::collectives
