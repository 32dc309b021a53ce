// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/launcher_place.h"

#include <algorithm>
#include <cstdint>

namespace hora::collectives {

LauncherPlace place_among(const std::vector<std::string>& machines, int rank) {
  std::vector<std::int32_t> first_of_host;
  std::vector<std::int32_t> local_ranks;
  for (const std::string& machine : machines) {
    // A host is represented by its first rank.
    const auto first = std::find(machines.begin(), machines.end(), machine);
    first_of_host.push_back(static_cast<std::int32_t>(first - machines.begin()));
    local_ranks.push_back(static_cast<std::int32_t>(
        std::count(first_of_host.begin(), first_of_host.end() - 1, first_of_host.back())));
  }
  const auto self = static_cast<std::size_t>(rank);
  LauncherPlace place;
  place.rank = rank;
  place.size = static_cast<std::int32_t>(machines.size());
  place.local_rank = local_ranks[self];
  place.local_size = static_cast<std::int32_t>(
      std::count(first_of_host.begin(), first_of_host.end(), first_of_host[self]));
  find_cross_place(first_of_host.data(), local_ranks.data(), place);
  return place;
}

}  // namespace hora::collectives
