// SPDX-License-Identifier: Apache-2.0
// The names and their sizes follow from the host list alone, so launcher and workers agree on them
// without talking.
#include "rendezvous/contract/store_keys.h"

#include <algorithm>

namespace hora::rendezvous {

std::string local_scope(std::string_view hostname) {
  return std::string(scope::kLocalPrefix) + std::string(hostname);
}

std::string cross_scope(int local_rank) {
  return std::string(scope::kCrossPrefix) + std::to_string(local_rank);
}

std::string rank_key(int index) { return std::to_string(index); }

// Horovod's workers meet three times: all of them, those of a host, and those of a local rank.
std::vector<ScopeSize> known_scopes(const std::vector<HostRanks>& hosts) {
  std::vector<ScopeSize> scopes;
  int world = 0;
  int widest = 0;
  for (const HostRanks& host : hosts) {
    world += host.local_size;
    widest = std::max(widest, host.local_size);
  }
  scopes.push_back({std::string(scope::kGlobal), world});
  for (const HostRanks& host : hosts) {
    scopes.push_back({local_scope(host.hostname), host.local_size});
  }
  // A cross scope holds one rank per host; hosts with fewer ranks have none in the higher ones.
  for (int local_rank = 0; local_rank < widest; ++local_rank) {
    const auto reach = std::count_if(hosts.begin(), hosts.end(), [&](const HostRanks& host) {
      return host.local_size > local_rank;
    });
    scopes.push_back({cross_scope(local_rank), static_cast<int>(reach)});
  }
  return scopes;
}

}  // namespace hora::rendezvous
