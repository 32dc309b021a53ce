// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/time_until.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace std::chrono_literals;

TEST_CASE("a deadline that has passed leaves no time, however long ago it was") {
  for (const Deadline deadline : {Clock::now() - 1ns, Clock::now() - 24h, Deadline::min()}) {
    CHECK(os::time_until(deadline) == 0ns);
    CHECK(os::milliseconds_until(deadline) == 0);
    const timespec left = os::timespec_until(deadline);
    CHECK(left.tv_sec == 0);
    CHECK(left.tv_nsec == 0);
  }
}

TEST_CASE("a deadline that never comes is a long wait, and no overflow") {
  CHECK(os::time_until(Deadline::max()) > 24h);
  CHECK(os::milliseconds_until(Deadline::max()) == 3'600'000);
  const timespec left = os::timespec_until(Deadline::max());
  CHECK(left.tv_sec > 3'600);
  CHECK(left.tv_nsec >= 0);
  CHECK(left.tv_nsec < 1'000'000'000);
}

TEST_CASE("what is left of a millisecond is waited for") {
  const Deadline soon = Clock::now() + 10s + 1ns;
  CHECK(os::milliseconds_until(soon) > 0);
  CHECK(os::milliseconds_until(soon) <= 10'001);
  CHECK(os::timespec_until(soon).tv_sec <= 10);
}
