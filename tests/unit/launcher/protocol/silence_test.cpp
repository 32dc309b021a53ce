// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/silence.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

const Silence::TimePoint kStart{1h};

}  // namespace

TEST_CASE("silence lasts since the other was heard") {
  Silence silence(kStart);
  silence.look(kStart + 2s, kStart + 2s, 2s);
  silence.look(kStart + 4s, kStart + 5s, 2s);  // a little late
  CHECK(silence.length(kStart + 5s) == 5s);
  silence.heard(kStart + 6s);
  CHECK(silence.length(kStart + 7s) == 1s);
  CHECK(silence.last_heard() == kStart + 6s);
}

TEST_CASE("what one has slept through is no silence of the other") {
  Silence silence(kStart);
  silence.look(kStart + 2s, kStart + 62s, 2s);
  CHECK(silence.length(kStart + 62s) == 2s);
  CHECK(silence.last_heard() == kStart);
  silence.look(kStart + 64s, kStart + 64s, 2s);
  CHECK(silence.length(kStart + 64s) == 4s);
  silence.look(kStart + 66s, kStart + 96s, 2s);
  CHECK(silence.length(kStart + 96s) == 6s);
  silence.heard(kStart + 97s);
  CHECK(silence.length(kStart + 100s) == 3s);
}

TEST_CASE("who is always late finds out in the end") {
  Silence silence(kStart);
  auto now = kStart;
  for (int look = 0; look < 5; ++look) {
    const auto due = now + 2s;
    now += 12s;
    silence.look(due, now, 2s);
  }
  CHECK(silence.length(now) == 10s);
}

TEST_CASE("no time is excused twice") {
  Silence silence(kStart);
  silence.heard(kStart + 60s);  // when it went on, before it looked
  silence.look(kStart + 2s, kStart + 61s, 2s);
  CHECK(silence.length(kStart + 61s) == 0s);
  CHECK(silence.length(kStart + 71s) == 10s);
}
