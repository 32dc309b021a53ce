// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/kept_back.h"

#include <algorithm>
#include <map>
#include <set>

#include "collectives/control/tree_plan.h"

namespace hora::collectives {

std::vector<int> who_keeps_back(const std::vector<int>& stopped,
                                const std::vector<std::int32_t>& missing,
                                const std::vector<std::int32_t>& hosts) {
  if (stopped.empty()) return {};
  // Hosts have their numbers by their first ranks, which lead them.
  std::map<std::int32_t, int> leaders;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    leaders.emplace(hosts[rank], static_cast<int>(rank));
  }
  std::set<int> passed;
  for (const std::int32_t rank : missing) {
    std::int32_t host = hosts[static_cast<std::size_t>(rank)];
    if (leaders.at(host) != rank) passed.insert(leaders.at(host));
    while (host != 0) {
      host = host_above(host);
      passed.insert(leaders.at(host));
    }
  }
  std::vector<int> found;
  std::copy_if(stopped.begin(), stopped.end(), std::back_inserter(found),
               [&](int rank) { return passed.count(rank) > 0; });
  return found;
}

}  // namespace hora::collectives
