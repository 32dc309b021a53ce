// SPDX-License-Identifier: Apache-2.0
// Clients that are connected to the server, which costs memory, and have not authenticated yet.
// [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "rendezvous/base/address.h"

namespace hora::rendezvous {

class UnauthenticatedPeers {
 public:
  using Id = std::uint64_t;  // of a connection; later ones are larger

  void add(Id id, const IpAddress& peer);
  void remove(Id id, const IpAddress& peer);
  std::size_t size() const { return size_; }

  // Chooses which is closed when there are too many: the oldest from the address with the most. So
  // one host's crowd costs another host's ranks nothing; and as a rank authenticates as soon as it
  // is answered, the oldest is the least likely to be one. Nothing: there is none.
  std::optional<Id> first_to_go() const;

 private:
  std::map<IpAddress, std::set<Id>> by_address_;  // none is empty
  std::size_t size_ = 0;
};

}  // namespace hora::rendezvous
