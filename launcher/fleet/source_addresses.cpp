// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/source_addresses.h"

#include "launcher/network/network_candidates.h"

namespace hora::launcher {

std::vector<std::string> addresses_for_all(const HostNetwork& source,
                                           const std::vector<std::string>& interfaces) {
  constexpr std::size_t kMostAddresses = 2;  // each costs a deadline where packets are dropped
  std::vector<std::string> found;
  const auto candidates = find_candidates({source}, interfaces);
  for (const Candidate& each : candidates.front()) {
    if (!each.refusal.empty() || each.address.is_loopback() || each.address.is_link_local()) {
      continue;
    }
    if (found.size() < kMostAddresses) found.push_back(format_address(each.address));
  }
  return found;
}

// The addresses of both are known, so those come first that lie in a network of both.
std::vector<std::string> addresses_for(const HostNetwork& host, const HostNetwork& source,
                                       const std::vector<std::string>& interfaces) {
  constexpr std::size_t kMostAddresses = 4;
  std::vector<std::string> found;
  const auto candidates = find_candidates({source, host}, interfaces);
  for (const Candidate& each : candidates.front()) {
    if (each.refusal.empty() && found.size() < kMostAddresses) {
      found.push_back(format_address(each.address));
    }
  }
  return found;
}

}  // namespace hora::launcher
