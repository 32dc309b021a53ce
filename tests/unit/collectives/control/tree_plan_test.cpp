// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/tree_plan.h"

#include <vector>

#include "tests/support/catch.h"

using namespace hora::collectives;

TEST_CASE("every host has a way to the first one, and few hosts directly below it") {
  constexpr int kHosts = 40'000;
  std::vector<int> below(kHosts);
  std::vector<int> depth(kHosts);
  int deepest = 0;
  for (int host = 1; host < kHosts; ++host) {
    const int above = host_above(host);
    REQUIRE(above >= 0);
    REQUIRE(above < host);
    ++below[static_cast<std::size_t>(above)];
    const int steps = depth[static_cast<std::size_t>(above)] + 1;
    depth[static_cast<std::size_t>(host)] = steps;
    deepest = std::max(deepest, steps);
  }
  CHECK(deepest == 4);
  for (int host = 0; host < kHosts; ++host) {
    const int count = below[static_cast<std::size_t>(host)];
    REQUIRE(count <= 4 * (kTreeFan - 1));
    REQUIRE(has_hosts_below(host, kHosts) == (count > 0));
  }
}

TEST_CASE("the hosts of a small job are directly below the first one") {
  for (int host = 1; host < kTreeFan; ++host) CHECK(host_above(host) == 0);
  CHECK(has_hosts_below(0, 2));
  CHECK(!has_hosts_below(0, 1));
  CHECK(!has_hosts_below(5, kTreeFan));
  CHECK(!has_hosts_below(kTreeFan, kTreeFan + 1));
}
