// SPDX-License-Identifier: Apache-2.0
#include "collectives/algorithms/ring_border.h"

#include "tests/support/catch.h"

using namespace hora::collectives;
using std::chrono::microseconds;

namespace {
constexpr std::int64_t kKiB = 1024;
}

TEST_CASE("ranks near each other take a ring from 32 KiB on") {
  for (const int ranks : {1, 2, 3, 4, 5, 64, 1000}) {
    for (const int us : {0, 1, 30, 199}) CHECK(ring_from(ranks, microseconds(us)) == 32 * kKiB);
  }
  CHECK(ring_from(1, microseconds(1'000'000)) == 32 * kKiB);
}

TEST_CASE("the farther the ranks are from each other, the later they take a ring") {
  for (const int ranks : {2, 3, 4, 5, 8, 64, 1000}) {
    std::int64_t before = 32 * kKiB;
    for (int us = 200; us <= 1'000'000; us = us * 3 / 2) {
      const std::int64_t border = ring_from(ranks, microseconds(us));
      CHECK(border >= before);
      CHECK(border <= 2048 * kKiB);
      before = border;
    }
    CHECK(before == 2048 * kKiB);
  }
}

TEST_CASE("the border lies about where it was measured between test hosts") {
  CHECK(ring_from(4, microseconds(300)) > 200 * kKiB);
  CHECK(ring_from(4, microseconds(300)) < 1024 * kKiB);
  CHECK(ring_from(4, microseconds(1000)) > 512 * kKiB);
  CHECK(ring_from(2, microseconds(1000)) > 1024 * kKiB);
  CHECK(ring_from(4, microseconds(10'000)) == 2048 * kKiB);
}

TEST_CASE("the largest numbers neither overflow nor divide by zero") {
  CHECK(ring_from(1 << 30, microseconds(1'000'000'000)) == 2048 * kKiB);
  CHECK(ring_from(2, microseconds(1'000'000'000'000)) == 2048 * kKiB);
}
