// SPDX-License-Identifier: Apache-2.0
// Puts the addresses of a host in the order in which another host should try them: shared networks
// before routed ones, IPv4 before IPv6.
#include "launcher/doctor/peer_addresses.h"

#include <algorithm>

#include "rendezvous/base/address.h"

namespace hora::launcher::doctor {

namespace {

// A host with many addresses would prolong every probe.
constexpr std::size_t kMostAddresses = 3;

}  // namespace

std::vector<std::string> addresses_towards(const Hello& from, const Hello& to) {
  std::vector<std::pair<int, std::string>> found;
  for (const InterfaceInfo& nic : to.interfaces) {
    if (!nic.up || nic.loopback || nic.virtual_bridge) continue;
    const auto address = parse_ip_address(nic.address);
    if (!address) continue;
    int rank = address->v6 ? 3 : 2;
    for (const InterfaceInfo& own : from.interfaces) {
      const auto network = parse_cidr(own.address + "/" + std::to_string(own.prefix_length));
      if (own.up && !own.loopback && !own.virtual_bridge && network &&
          network->contains(*address)) {
        rank = std::min(rank, address->v6 ? 1 : 0);
      }
    }
    found.emplace_back(rank, nic.address);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (const auto& [rank, address] : found) {
    if (out.size() < kMostAddresses) out.push_back(address);
  }
  return out;
}

}  // namespace hora::launcher::doctor
