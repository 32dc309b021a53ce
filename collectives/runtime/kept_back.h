// SPDX-License-Identifier: Apache-2.0
// Who keeps back what others say in a large job, where it goes by the leaders of the hosts.  [pure]
#pragma once

#include <cstdint>
#include <vector>

namespace hora::collectives {

// Those of `stopped` by whom something goes that a rank of `missing` says to rank 0: the leader of
// its host, and the leaders above that (tree_plan.h). `hosts`: host numbers by rank.
std::vector<int> who_keeps_back(const std::vector<int>& stopped,
                                const std::vector<std::int32_t>& missing,
                                const std::vector<std::int32_t>& hosts);

}  // namespace hora::collectives
