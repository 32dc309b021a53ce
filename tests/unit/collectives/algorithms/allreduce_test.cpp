// SPDX-License-Identifier: Apache-2.0
#include "collectives/algorithms/allreduce.h"

#include "tests/support/catch.h"

using namespace hora::collectives;
using std::chrono::microseconds;

namespace {
constexpr std::int64_t kKiB = 1024;
}

TEST_CASE("ranks near each other take a ring above 64 KiB, a power of two above 128 KiB") {
  for (const int us : {0, 1, 30, 199}) {
    for (const int ranks : {3, 5, 6, 7, 9, 1000}) {
      const AllreduceBorders borders = allreduce_borders(ranks, microseconds(us));
      CHECK(borders.ring_from == kPairwiseUneven + 1);
      CHECK(borders.halving_from == borders.ring_from);
    }
    for (const int ranks : {2, 4, 8, 1024}) {
      const AllreduceBorders borders = allreduce_borders(ranks, microseconds(us));
      CHECK(borders.ring_from == kPairwise + 1);
      CHECK(borders.halving_from == (ranks == 2 ? borders.ring_from : 32 * kKiB));
    }
  }
  CHECK(allreduce_borders(1, microseconds(1'000'000)).ring_from == 32 * kKiB);
}

TEST_CASE("the farther the ranks are from each other, the later they change") {
  for (const int ranks : {2, 3, 4, 5, 8, 64, 1000}) {
    AllreduceBorders before = allreduce_borders(ranks, microseconds(0));
    for (int us = 200; us <= 1'000'000; us = us * 3 / 2) {
      const AllreduceBorders borders = allreduce_borders(ranks, microseconds(us));
      CHECK(borders.halving_from <= borders.ring_from);
      CHECK(borders.halving_from >= before.halving_from);
      CHECK(borders.ring_from >= before.ring_from);
      CHECK(borders.ring_from <= 2048 * kKiB);
      before = borders;
    }
    CHECK(before.halving_from == 2048 * kKiB);
  }
}

TEST_CASE("the borders lie about where they were measured between test hosts") {
  const auto doubling_until = [](int ranks, int us) {
    return allreduce_borders(ranks, microseconds(us)).halving_from;
  };
  CHECK(doubling_until(3, 300) > 100 * kKiB);
  CHECK(doubling_until(3, 300) < 1024 * kKiB);
  CHECK(doubling_until(4, 1000) > 256 * kKiB);
  CHECK(doubling_until(4, 1000) < 1024 * kKiB);
  CHECK(doubling_until(2, 1000) > 1024 * kKiB);
  CHECK(doubling_until(4, 10'000) == 2048 * kKiB);
}

TEST_CASE("the largest numbers neither overflow nor divide by zero") {
  CHECK(allreduce_borders(1 << 30, microseconds(1'000'000'000)).ring_from == 2048 * kKiB);
  CHECK(allreduce_borders(2, microseconds(1'000'000'000'000)).ring_from == 2048 * kKiB);
}
