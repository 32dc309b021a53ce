// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/contract/store_keys.h"

#include "tests/support/catch.h"

using namespace hora::rendezvous;

TEST_CASE("ranks are named with their hosts") {
  const std::string text = encode_rank_hosts({{"node1", {0, 1, 2, 9}}, {"node2", {8, 3, 5}}});
  CHECK(text == "node1 0-2 9\nnode2 3 5 8\n");
  CHECK(name_hosts_of(text, {1}) == "rank 1 on node1");
  CHECK(name_hosts_of(text, {2, 3, 8, 9}) == "ranks 2, 9 on node1, ranks 3, 8 on node2");
}

TEST_CASE("ranks of which nothing is known are left out") {
  CHECK(name_hosts_of("node1 0-2\n", {4}).empty());
  CHECK(name_hosts_of("", {0}).empty());
  CHECK(name_hosts_of("no number\nnode2 x-3 1-\n", {0, 1, 2}).empty());
}
