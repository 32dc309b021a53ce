// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/unauthenticated_peers.h"

#include <algorithm>

namespace hora::rendezvous {

void UnauthenticatedPeers::add(Id id, const IpAddress& peer) {
  if (by_address_[peer].insert(id).second) ++size_;
}

void UnauthenticatedPeers::remove(Id id, const IpAddress& peer) {
  const auto found = by_address_.find(peer);
  if (found == by_address_.end() || found->second.erase(id) == 0) return;
  --size_;
  if (found->second.empty()) by_address_.erase(found);
}

std::optional<UnauthenticatedPeers::Id> UnauthenticatedPeers::first_to_go() const {
  const auto crowd =
      std::max_element(by_address_.begin(), by_address_.end(), [](const auto& a, const auto& b) {
        if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
        // Of equal crowds the one with the oldest connection, so that the choice does not depend on
        // addresses.
        return *a.second.begin() > *b.second.begin();
      });
  if (crowd == by_address_.end()) return std::nullopt;
  return *crowd->second.begin();
}

}  // namespace hora::rendezvous
