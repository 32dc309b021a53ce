// SPDX-License-Identifier: Apache-2.0
// One pass over the ranks in set order: hosts are numbered in the order of their first ranks, so
// every rank computes the same plan from the same list.
#include "collectives/backends/hierarchy.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace hora::collectives {

Hierarchy plan_hierarchy(const std::vector<std::int32_t>& ranks,
                         const std::vector<std::int32_t>& hosts, int index) {
  Hierarchy plan;
  std::map<std::int32_t, std::size_t> place_of;
  std::vector<std::vector<std::int32_t>> members;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto [place, fresh] = place_of.emplace(hosts[i], members.size());
    if (fresh) {
      members.emplace_back();
      plan.first_member.push_back(static_cast<int>(i));
    }
    auto& on_host = members[place->second];
    // A gap between two members of a host means that another host's rows would lie between theirs.
    const auto expected = plan.first_member[place->second] + static_cast<int>(on_host.size());
    if (expected != static_cast<int>(i)) plan.in_blocks = false;
    if (static_cast<int>(i) == index) {
      plan.host_index = static_cast<int>(place->second);
      plan.local_index = static_cast<int>(on_host.size());
    }
    on_host.push_back(ranks[i]);
  }
  for (const auto& on_host : members) plan.host_sizes.push_back(static_cast<int>(on_host.size()));
  // Driver i of each host talks to driver i of the others, so every host needs as many.
  plan.drivers = *std::min_element(plan.host_sizes.begin(), plan.host_sizes.end());
  plan.driving = plan.local_index < plan.drivers;
  plan.local = members[static_cast<std::size_t>(plan.host_index)];
  // The peers of a driver have its local index on their hosts.
  for (const auto& on_host : members) {
    if (plan.driving) plan.peers.push_back(on_host[static_cast<std::size_t>(plan.local_index)]);
  }
  return plan;
}

bool is_worth_hierarchy(const std::vector<std::int32_t>& hosts) {
  std::map<std::int32_t, int> counts;
  for (const std::int32_t host : hosts) ++counts[host];
  return counts.size() > 1 && std::any_of(counts.begin(), counts.end(),
                                          [](const auto& each) { return each.second > 1; });
}

}  // namespace hora::collectives
