// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/fd.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace std::chrono_literals;

TEST_CASE("what is refused for the moment is tried again") {
  int refusals = 3;
  int attempts = 0;
  const auto attempt = [&] {
    ++attempts;
    return refusals-- > 0 ? EAGAIN : 0;
  };
  CHECK(os::retry_while_refused(attempt, Clock::now() + 1h) == 0);
  CHECK(attempts == 4);
}

TEST_CASE("another failure is not tried again") {
  int attempts = 0;
  const auto attempt = [&] {
    ++attempts;
    return ENOMEM;
  };
  CHECK(os::retry_while_refused(attempt, Clock::now() + 1h) == ENOMEM);
  CHECK(attempts == 1);
}

TEST_CASE("after the deadline the refusal stands, and there was one attempt at least") {
  int attempts = 0;
  const auto attempt = [&] {
    ++attempts;
    return EAGAIN;
  };
  CHECK(os::retry_while_refused(attempt, Clock::now() - 1s) == EAGAIN);
  CHECK(attempts == 1);
}
