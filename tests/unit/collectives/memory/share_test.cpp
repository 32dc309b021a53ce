// SPDX-License-Identifier: Apache-2.0
#include "collectives/memory/share.h"

#include "tests/support/catch.h"

using hora::collectives::Share;
using hora::collectives::share_of;

TEST_CASE("share: all elements, each once, in whole cache lines") {
  for (const int size : {1, 2, 3, 8, 64}) {
    for (const std::int64_t width : {1, 2, 4, 8, 16}) {
      for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4097}) {
        CAPTURE(size, width, count);
        std::int64_t at = 5;
        for (int rank = 0; rank < size; ++rank) {
          const Share its = share_of(rank, size, 5, count, width);
          CHECK(its.begin == at);
          CHECK(its.end >= its.begin);
          if (its.end < 5 + count) CHECK((its.end - 5) * width % 64 == 0);
          at = its.end;
        }
        CHECK(at == 5 + count);
      }
    }
  }
}

TEST_CASE("share: of much, no rank has more than a cache line more than its part") {
  const Share first = share_of(0, 3, 0, 1000, 4);
  CHECK(first.end - first.begin == 336);
  const Share last = share_of(2, 3, 0, 1000, 4);
  CHECK(last.end - last.begin == 328);
}
