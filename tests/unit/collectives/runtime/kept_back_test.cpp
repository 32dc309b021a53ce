// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/kept_back.h"

#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

using Ranks = std::vector<int>;

std::vector<std::int32_t> hosts_of(int hosts, int ranks_each) {
  std::vector<std::int32_t> numbers;
  for (int rank = 0; rank < hosts * ranks_each; ++rank) numbers.push_back(rank / ranks_each);
  return numbers;
}

}  // namespace

TEST_CASE("a leader keeps back what the ranks of its host say, and what comes from hosts below") {
  const auto hosts = hosts_of(70, 2);  // 32 and 64 have hosts below them
  CHECK(who_keeps_back({2}, {3}, hosts) == Ranks{2});
  CHECK(who_keeps_back({64}, {65}, hosts) == Ranks{64});
  CHECK(who_keeps_back({64}, {66, 67}, hosts) == Ranks{64});  // host 33
  CHECK(who_keeps_back({64}, {126}, hosts) == Ranks{64});     // host 63
  CHECK(who_keeps_back({64, 128}, {130, 67}, hosts) == Ranks{64, 128});
  CHECK(who_keeps_back({66, 64}, {67}, hosts) == Ranks{66, 64});
}

TEST_CASE("ranks by which nothing goes keep nothing back") {
  const auto hosts = hosts_of(70, 2);
  CHECK(who_keeps_back({}, {3}, hosts).empty());
  CHECK(who_keeps_back({2}, {2}, hosts).empty());    // it is missing itself
  CHECK(who_keeps_back({3}, {2}, hosts).empty());    // no leader
  CHECK(who_keeps_back({66}, {64}, hosts).empty());  // the other way round
  CHECK(who_keeps_back({64}, {128, 130}, hosts).empty());
  CHECK(who_keeps_back({2}, {5}, hosts).empty());
}
