// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_waits.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::rendezvous;
using Clients = std::vector<KvWaits::ClientId>;

namespace {

Clock::time_point at(int seconds) { return Clock::time_point{} + std::chrono::seconds(seconds); }

std::size_t scopes(const KvWaits& waits) {
  return waits.count_scopes([](std::string_view) { return false; });
}

}  // namespace

TEST_CASE("a key ends the waits for it, in the order in which they came, and no other") {
  KvWaits waits;
  waits.park_for_key(2, "s", "k", at(1));
  waits.park_for_key(1, "s", "k", at(2));
  waits.park_for_key(3, "s", "other", at(3));
  waits.park_for_key(4, "t", "k", at(4));
  CHECK(waits.take_waiting_for_key("s", "k") == Clients{2, 1});
  CHECK(waits.take_waiting_for_key("s", "k").empty());
  CHECK(waits.count() == 2);
  CHECK_FALSE(waits.has(1));
  CHECK(waits.next_deadline() == at(3));
}

TEST_CASE("a number of keys ends the waits for as many or fewer") {
  KvWaits waits;
  waits.park_for_count(1, "s", 3, at(1));
  waits.park_for_count(2, "s", 2, at(1));
  waits.park_for_count(3, "s", 4, at(1));
  CHECK(waits.take_waiting_for_count("s", 3) == Clients{2, 1});
  CHECK(waits.take_waiting_for_count("unknown", 3).empty());
  CHECK(waits.has(3));
}

TEST_CASE("waits end at their deadline, the earliest first") {
  KvWaits waits;
  waits.park_for_key(1, "s", "k", at(5));
  waits.park_for_count(2, "s", 1, at(3));
  waits.park_for_key(3, "s", "k", at(9));
  CHECK(waits.take_expired(at(2)).empty());
  CHECK(waits.take_expired(at(5)) == Clients{2, 1});
  CHECK(waits.take_waiting_for_key("s", "k") == Clients{3});
  CHECK_FALSE(waits.next_deadline().has_value());
}

TEST_CASE("a client that goes leaves nothing behind") {
  KvWaits waits;
  waits.park_for_key(1, "s", "k", at(1));
  waits.park_for_count(2, "t", 1, at(1));
  CHECK(scopes(waits) == 2);
  CHECK(waits.count_scopes([](std::string_view name) { return name == "s"; }) == 1);
  waits.forget(1);
  waits.forget(1);
  waits.forget(2);
  CHECK(waits.count() == 0);
  CHECK(scopes(waits) == 0);
  CHECK_FALSE(waits.next_deadline().has_value());
}
