// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/tcp_state.h"

#include "tests/support/catch.h"

using hora::net::is_lossy;

TEST_CASE("losses: one packet in a hundred is many, fewer are not") {
  CHECK_FALSE(is_lossy(0, 0));
  CHECK_FALSE(is_lossy(1'000, 0));
  CHECK(is_lossy(3, 1));
  CHECK(is_lossy(100, 1));
  CHECK_FALSE(is_lossy(101, 1));
  CHECK(is_lossy(4'000'000'000u, 50'000'000u));
  CHECK_FALSE(is_lossy(4'000'000'000u, 39'999'999u));
}

TEST_CASE("losses: an invalid descriptor has none") {
  CHECK_FALSE(hora::net::has_outlived_losses(-1));
}
