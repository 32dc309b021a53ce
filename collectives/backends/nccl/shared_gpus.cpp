// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/shared_gpus.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hora::collectives::nccl {

std::vector<int> ranks_that_share(std::span<const std::int32_t> hosts,
                                  std::span<const std::vector<std::string>> gpus) {
  std::map<std::pair<std::int32_t, std::vector<std::string>>, std::vector<int>> by_gpus;
  for (std::size_t place = 0; place < hosts.size(); ++place) {
    if (gpus[place].empty()) continue;
    // CUDA_VISIBLE_DEVICES orders them as it likes.
    std::vector<std::string> sorted = gpus[place];
    std::sort(sorted.begin(), sorted.end());
    auto& ranks = by_gpus[{hosts[place], sorted}];
    ranks.push_back(static_cast<int>(place));
    if (ranks.size() > sorted.size()) return ranks;
  }
  return {};
}

}  // namespace hora::collectives::nccl
