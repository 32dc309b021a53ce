// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/epoch_orders.h"

#include <algorithm>
#include <string>

#include "rendezvous/contract/worker_env.h"

namespace hora::launcher::elastic {

HostOrder order_of_incarnation(const std::vector<HostOrder>& orders,
                               const std::vector<ElasticState::Seat>& seats,
                               IncarnationId incarnation, int epoch) {
  const auto is_its = [&](const RankOrder& rank) {
    return seats[static_cast<std::size_t>(rank.rank)].incarnation == incarnation;
  };
  const auto host = std::find_if(orders.begin(), orders.end(), [&](const HostOrder& order) {
    return std::any_of(order.ranks.begin(), order.ranks.end(), is_its);
  });
  HostOrder order = *host;
  // Ranks that come later need theirs, too.
  if (order.gpus_per_rank == "auto") order.gpus_per_rank = "1";
  std::erase_if(order.ranks, [&](const RankOrder& rank) { return !is_its(rank); });
  for (RankOrder& rank : order.ranks) {
    rank.rank = seats[static_cast<std::size_t>(rank.rank)].worker;
    // Who comes later finds standard input half read.
    if (epoch > 1) rank.stdin_source = StdinSource::kNull;
    rank.environment.emplace_back(rendezvous::env::kWorker, std::to_string(rank.rank));
    rank.environment.emplace_back(rendezvous::env::kRound, std::to_string(epoch));
  }
  return order;
}

}  // namespace hora::launcher::elastic
