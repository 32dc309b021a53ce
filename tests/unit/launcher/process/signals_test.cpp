// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/signals.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <vector>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

TEST_CASE("what comes together is one request to end") {
  EndRequests requests;
  const Clock::time_point start;
  CHECK_FALSE(requests.is_repeat(false, start));
  CHECK(requests.is_repeat(false, start));
  CHECK(requests.is_repeat(true, start + 100ms));
  CHECK(requests.is_repeat(false, start + 499ms));
  // Those that did not count do not put the next one off.
  CHECK_FALSE(requests.is_repeat(false, start + 500ms));
  CHECK(requests.is_repeat(false, start + 501ms));
}

TEST_CASE("a key that is pressed again asks again, what is passed on does not") {
  EndRequests requests;
  const Clock::time_point start;
  CHECK_FALSE(requests.is_repeat(true, start));
  CHECK(requests.is_repeat(false, start + 1ms));
  CHECK_FALSE(requests.is_repeat(true, start + 120ms));
  CHECK(requests.is_repeat(false, start + 121ms));
}

TEST_CASE("of signals that come together the first one is handed on, and others all") {
  auto loop = os::EventLoop::create();
  REQUIRE(loop);
  std::vector<int> taken;
  auto signals = Signals::watch(**loop, [&taken](int signal) { taken.push_back(signal); });
  REQUIRE(signals);
  for (const int signal : {SIGTERM, SIGTERM, SIGUSR1, SIGINT, SIGUSR1}) {
    REQUIRE(::kill(::getpid(), signal) == 0);
    (*signals)->take();
  }
  CHECK(taken == std::vector{SIGTERM, SIGUSR1, SIGUSR1});
}
