// SPDX-License-Identifier: Apache-2.0
#include "collectives/memory/futex.h"

#include <sched.h>

#include <climits>

#include "rendezvous/os/time_until.h"

namespace hora::collectives {

// The futexes are not FUTEX_PRIVATE: the words lie in memory that several processes map. The return
// values are ignored, because every caller looks at its condition again.

void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Deadline deadline) {
  if (deadline == Deadline::max()) {
    futex(word, FUTEX_WAIT, value, nullptr);
    return;
  }
  // FUTEX_WAIT takes a relative time, measured by the monotonic clock.
  const timespec relative = os::timespec_until(deadline);
  if (relative.tv_sec == 0 && relative.tv_nsec == 0) return;
  futex(word, FUTEX_WAIT, value, &relative);
}

void give_way() { sched_yield(); }

void wake_all(std::atomic<std::uint32_t>& word) { futex(word, FUTEX_WAKE, INT_MAX, nullptr); }

bool cores_for(int local_ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return false;
  // A launcher that binds ranks gives each its own cores. So a rank that is bound to fewer cores
  // than there are ranks has them for itself, as long as the host as a whole has enough.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return CPU_COUNT(&cores) >= local_ranks || (CPU_COUNT(&cores) < online && online >= local_ranks);
}

}  // namespace hora::collectives
