// SPDX-License-Identifier: Apache-2.0
// The ranks tell each other the identity of their machine before anybody knows who shares one, so
// places are known only after they have met.
#include "collectives/runtime/machine_place.h"

#include <string>

#include "collectives/runtime/launcher_place.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/service_thread.h"

namespace hora::collectives {

void find_place_on_machine(const std::vector<RankInfo>& ranks, Settings& settings) {
  std::vector<std::string> machines;
  for (const RankInfo& each : ranks) machines.push_back(each.machine);
  const LauncherPlace place = place_among(machines, settings.rank);
  settings.local_rank = place.local_rank;
  settings.local_size = place.local_size;
  settings.cross_rank = place.cross_rank;
  settings.cross_size = place.cross_size;
}

void pin_to_core(std::thread& thread, const Settings& settings) {
  const auto place = static_cast<std::size_t>(settings.local_rank);
  const std::vector<int>& cores = settings.thread_affinity;
  if (cores.empty()) return;  // the kernel chooses
  if (place >= cores.size()) {
    os::log_warn("settings",
                 "HOROVOD_THREAD_AFFINITY names " + std::to_string(cores.size()) + " of " +
                     std::to_string(settings.local_size) +
                     " cores that the ranks of this host need: the thread of local rank " +
                     std::to_string(settings.local_rank) + " runs on any");
    return;
  }
  const Status pinned = os::pin_thread(thread, cores[place]);
  if (pinned) return;
  os::log_warn("settings", "HOROVOD_THREAD_AFFINITY: " + pinned.error().message +
                               "; the thread of local rank " + std::to_string(settings.local_rank) +
                               " runs on any");
}

}  // namespace hora::collectives
