// SPDX-License-Identifier: Apache-2.0
// The data that every rank sends to all others when they meet. [pure]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/autotune/parameters.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// A switch that may be left to the library.
enum class Choice : std::int8_t { kAuto = -1, kOff = 0, kOn = 1 };

struct RankInfo {
  std::string hostname;
  std::string machine;  // equal on two ranks: they share memory
  int local_rank = 0;
  int local_size = 1;
  std::vector<std::string> backends;                    // that work here, best known first
  std::vector<std::vector<std::int32_t>> process_sets;  // static ones
  // Rank 0's hold for all.
  Parameters parameters;
  std::int64_t cache_capacity = 1024;
  bool deterministic = false;
  bool group_fusion = true;
  // For the signs of life (watchdog.h); 0: none.
  std::int64_t stall_warning_s = 0;
  std::int64_t stall_limit_s = 0;
  Choice hierarchical_allreduce = Choice::kAuto;
  Choice hierarchical_allgather = Choice::kAuto;
  std::string heartbeat_card;  // Heartbeat::card(); empty: it has none
  std::string host_card;       // LocalListener::card
  std::string hosts_card;      // OwnSockets::card
  std::string links_card;      // ListeningLinks::card

  friend bool operator==(const RankInfo&, const RankInfo&) = default;
};

std::string encode_rank_info(const RankInfo& rank_info);
Result<RankInfo> decode_rank_info(std::string_view bytes);

// Host numbers by rank, counted from 0 in the order of the ranks.
std::vector<std::int32_t> number_hosts(const std::vector<RankInfo>& all);
// Why the static process sets cannot be made; empty when they can. The same text on every rank.
std::string check_process_sets(const std::vector<RankInfo>& all);

}  // namespace hora::collectives
