// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/unauthenticated_peers.h"

#include <random>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::rendezvous;

namespace {

IpAddress address(std::string_view text) { return *parse_ip_address(text); }

}  // namespace

TEST_CASE("unauthenticated peers: of one address the oldest goes first") {
  UnauthenticatedPeers pending;
  CHECK_FALSE(pending.first_to_go());
  for (const UnauthenticatedPeers::Id id : {7, 5, 9}) pending.add(id, address("10.0.0.1"));
  CHECK(pending.size() == 3);
  CHECK(pending.first_to_go() == 5);
  pending.remove(5, address("10.0.0.1"));
  CHECK(pending.first_to_go() == 7);
}

TEST_CASE(
    "unauthenticated peers: one of the most frequent address goes first, even if others are "
    "older") {
  UnauthenticatedPeers pending;
  pending.add(1, address("10.0.0.1"));
  pending.add(2, address("10.0.0.1"));
  for (UnauthenticatedPeers::Id id = 3; id < 6; ++id) pending.add(id, address("fe80::1"));
  CHECK(pending.first_to_go() == 3);
  pending.remove(3, address("fe80::1"));
  CHECK(pending.first_to_go() == 1);  // as many from each: the oldest
}

TEST_CASE(
    "unauthenticated peers: each is counted once, and removing an unknown one changes nothing") {
  UnauthenticatedPeers pending;
  pending.add(1, address("10.0.0.1"));
  pending.add(1, address("10.0.0.1"));
  CHECK(pending.size() == 1);
  pending.remove(1, address("10.0.0.2"));
  pending.remove(2, address("10.0.0.1"));
  CHECK(pending.size() == 1);
  pending.remove(1, address("10.0.0.1"));
  CHECK(pending.size() == 0);
  CHECK_FALSE(pending.first_to_go());
}

TEST_CASE("unauthenticated peers: a host's ranks stay, however many come from elsewhere") {
  std::mt19937 random(GENERATE(1, 2, 3));
  const IpAddress host = address("10.0.0.1");
  const std::vector<IpAddress> elsewhere = {address("10.0.0.2"), address("10.0.0.3")};
  constexpr std::size_t kMost = 100;
  constexpr UnauthenticatedPeers::Id kRanks = 8;
  UnauthenticatedPeers pending;
  for (UnauthenticatedPeers::Id id = 0; id < kRanks; ++id) pending.add(id, host);
  std::vector<IpAddress> from(kRanks, host);
  for (UnauthenticatedPeers::Id id = kRanks; id < 10'000; ++id) {
    from.push_back(elsewhere[random() % elsewhere.size()]);
    pending.add(id, from.back());
    while (pending.size() > kMost) {
      const auto leaving = pending.first_to_go();
      REQUIRE(leaving);
      REQUIRE(*leaving >= kRanks);
      pending.remove(*leaving, from[*leaving]);
    }
  }
  CHECK(pending.size() == kMost);
}
