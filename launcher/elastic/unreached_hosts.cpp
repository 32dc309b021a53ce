// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/unreached_hosts.h"

#include <utility>

namespace hora::launcher::elastic {

// Of two hosts the one with the higher ranks is to blame, because the others keep their order
// without it. But a host that reaches none of several others is cut off itself, whatever its ranks;
// only the last one that knows the state of the training cannot be spared.
//
// One epoch without such a failure clears all: until then every epoch counts against some host, so
// there is an end.
std::vector<UnreachedHosts::LeftOut> UnreachedHosts::end_epoch(const std::vector<Member>& members) {
  const auto pairs = std::exchange(pairs_, {});
  if (pairs.empty()) spoilt_.clear();
  std::map<std::size_t, std::set<std::size_t>> missing;
  for (const auto& [one, other] : pairs) {
    missing[one].insert(other);
    missing[other].insert(one);
  }
  const auto is_alone = [&](std::size_t host) {
    return members.size() > 2 && missing[host].size() == members.size() - 1;
  };
  const auto can_be_spared = [&](std::size_t host) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i != host && members[i].knows_state) return true;
    }
    return false;
  };
  std::set<std::size_t> to_blame;
  for (const auto& [one, other] : pairs) {
    to_blame.insert(is_alone(one) && can_be_spared(one) ? one : other);
  }
  std::vector<LeftOut> left_out;
  for (const std::size_t host : to_blame) {
    if (++spoilt_[members[host].name] < kMostEpochs) continue;
    spoilt_.erase(members[host].name);
    left_out.push_back({host, {}});
    for (const std::size_t each : missing[host]) {
      left_out.back().missing.push_back(members[each].name);
    }
  }
  return left_out;
}

}  // namespace hora::launcher::elastic
