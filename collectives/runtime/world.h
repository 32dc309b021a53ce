// SPDX-License-Identifier: Apache-2.0
// Where this process is in the world; fixed after the ranks have met.
#pragma once

#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/runtime/rank_info.h"
#include "collectives/runtime/settings.h"

namespace hora::collectives {

struct World {
  Settings settings;
  std::vector<RankInfo> rank_infos;  // by rank
  std::vector<std::int32_t> hosts;   // host number by rank
  std::string address;               // own, numeric, towards the other hosts

  // This is rank 0.
  bool coordinates() const { return settings.rank == 0; }
  // What holds for all ranks: rank 0's.
  const RankInfo& agreed() const { return rank_infos.front(); }
  // How long a rank may show no sign of life while others wait for it; 0: for ever.
  std::chrono::seconds stall_limit() const { return std::chrono::seconds(agreed().stall_limit_s); }
  std::vector<std::int32_t> ranks() const {
    std::vector<std::int32_t> all(static_cast<std::size_t>(settings.size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // All but rank 0.
  std::vector<std::int32_t> other_ranks() const {
    std::vector<std::int32_t> others(static_cast<std::size_t>(settings.size) - 1);
    std::iota(others.begin(), others.end(), 1);
    return others;
  }
  // For people.
  std::string name_rank(int rank) const {
    return "rank " + std::to_string(rank) + " (" +
           rank_infos[static_cast<std::size_t>(rank)].hostname + ")";
  }
};

}  // namespace hora::collectives
