// SPDX-License-Identifier: Apache-2.0
// Repeated requests, by number: counted, and spelled out as soon as a rank deviates.
#include <map>

#include "collectives/negotiation/coordinator.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

const Coordinator::TimePoint kNow{};

// A world in which the tensors t1, t2, ... were agreed on before, under the numbers 1, 2, ...
struct World {
  explicit World(int size) : coordinator(size) {}

  const Response& known(std::uint64_t number) {
    Response& response = responses[number];
    response.agreed.action = Action::kAllreduce;
    response.agreed.dtype = HORA_FLOAT32;
    response.agreed.name = "t" + std::to_string(number);
    response.agreed.shape = {4};
    return response;
  }
  Request in_full(std::uint64_t number) { return known(number).agreed; }
  void ask(int rank, std::uint64_t number) {
    REQUIRE(coordinator.add_known(rank, number, known(number), kNow));
  }
  // As the engine does it.
  void ask_in_full(int rank, std::uint64_t number, const Request& request) {
    coordinator.spell_out(0, number);
    coordinator.add(rank, request, kNow);
  }
  // "1 2 !t3": numbers, and names of requests without one, errors with a mark.
  std::string ready() {
    std::string text;
    for (const Coordinator::Ready& each : coordinator.take_ready()) {
      if (!text.empty()) text += ' ';
      const Response& response = each.response();
      if (response.status != HORA_OK) text += '!';
      text += each.number != 0 ? std::to_string(each.number) : response.agreed.name;
      if (!response.error.empty()) error = response.error;
    }
    return text;
  }

  Coordinator coordinator;
  std::map<std::uint64_t, Response> responses;
  std::string error;
};

}  // namespace

TEST_CASE("counts: ready in the order in which the last rank asks, larger priorities first") {
  World world(3);
  for (const int rank : {0, 2}) {
    for (const std::uint64_t number : {1, 2, 3, 4}) world.ask(rank, number);
  }
  CHECK(world.ready().empty());
  CHECK(world.coordinator.anything_waiting());
  world.responses[4].agreed.priority = 1;
  for (const std::uint64_t number : {3, 1, 4}) world.ask(1, number);
  world.ask(1, 3);  // twice is once
  CHECK(world.ready() == "4 3 1");
  const auto waiting = world.coordinator.waiting();
  REQUIRE(waiting.size() == 1);
  CHECK(waiting[0].name == "t2");
  CHECK(waiting[0].missing == std::vector<std::int32_t>{1});
  world.ask(1, 2);
  CHECK(world.ready() == "2");
  CHECK_FALSE(world.coordinator.anything_waiting());
}

TEST_CASE("counts: in the middle of a set a rank asks for another shape") {
  World world(2);
  for (const std::uint64_t number : {1, 2, 3}) world.ask(0, number);
  world.ask(1, 1);
  Request other = world.in_full(2);
  other.shape = {5};
  world.ask_in_full(1, 2, other);
  world.ask(1, 3);
  CHECK(world.ready() == "1 !t2 3");
  CHECK_THAT(world.error, Contains("t2") && Contains("rank 0") && Contains("rank 1") &&
                              Contains("[4]") && Contains("[5]"));
}

TEST_CASE("counts: a request by number joins requests that others made in full") {
  World world(3);
  world.ask_in_full(1, 1, world.in_full(1));
  world.ask(0, 1);
  CHECK(world.ready().empty());
  world.ask(2, 1);
  CHECK(world.ready() == "t1");
}

TEST_CASE("counts: a number that is forgotten, counted or ready, is not lost") {
  World world(2);
  world.ask(0, 1);
  world.ask(0, 2);
  world.ask(1, 2);
  for (const std::uint64_t number : {1, 2, 9}) world.coordinator.spell_out(0, number);
  CHECK(world.ready() == "t2");
  world.ask(1, 1);
  CHECK(world.ready() == "t1");
}

TEST_CASE("counts: a rank joins in the middle of a set") {
  World world(3);
  for (const std::uint64_t number : {1, 2, 3}) world.ask(0, number);
  for (const std::uint64_t number : {1, 2}) world.ask(1, number);
  world.ask(2, 1);
  Request join;
  join.action = Action::kJoin;
  join.name = "hora.join";
  world.coordinator.add(2, join, kNow);
  const auto ready = world.coordinator.take_ready();
  REQUIRE(ready.size() == 2);
  CHECK(ready[0].response().agreed.name == "t1");
  CHECK(ready[0].response().joined.empty());
  CHECK(ready[1].response().agreed.name == "t2");
  CHECK(ready[1].response().joined == std::vector<std::int32_t>{2});
  world.ask(1, 3);
  CHECK(world.ready() == "t3");
}

TEST_CASE("counts: members of a group, and what was torn out of one, go the long way") {
  World world(2);
  for (const std::uint64_t number : {1, 2}) {
    world.known(number);
    world.responses[number].agreed.group = "t1";
    world.responses[number].agreed.group_size = 2;
  }
  for (const int rank : {0, 1}) world.ask(rank, 1);
  CHECK(world.ready().empty());
  world.ask(0, 2);
  Request alone = world.in_full(2);
  alone.group.clear();
  alone.group_size = 1;
  world.ask_in_full(1, 2, alone);
  CHECK(world.ready() == "!t1 !t2");
}

TEST_CASE("counts: reductions wait for what others have asked for by number") {
  using std::chrono::microseconds;
  World world(2);
  world.ask(0, 1);
  world.ask(0, 2);
  world.ask(1, 1);
  CHECK(world.coordinator.wait_for_more(kNow, microseconds(100), 1000));
  CHECK_FALSE(world.coordinator.wait_for_more(kNow, microseconds(100), 16));
  world.ask(1, 2);
  CHECK_FALSE(world.coordinator.wait_for_more(kNow, microseconds(100), 1000));
  CHECK(world.ready() == "1 2");
}

TEST_CASE("counts: more than 64 and more than 128 ranks") {
  World world(200);
  for (int rank = 199; rank > 0; --rank) world.ask(rank, 7);
  world.ask(150, 7);
  CHECK(world.ready().empty());
  CHECK(world.coordinator.waiting().at(0).missing == std::vector<std::int32_t>{0});
  world.ask(0, 7);
  CHECK(world.ready() == "7");
}

TEST_CASE(
    "counts: where one rank starts a prepared set, the tensors that others wait for fail with it") {
  World world(2);
  Request set = world.in_full(1);
  set.members = Members({{4, 4, 4}, {"t1", "t2", "t3"}});
  set.shape = {12};
  // t2 waits as a number, t3 in full; t4 is none of the set's, and all have asked for t5.
  world.ask(1, 2);
  world.coordinator.add(1, world.in_full(3), kNow);
  world.ask(1, 4);
  for (const int rank : {0, 1}) world.ask(rank, 5);
  world.coordinator.add(0, set, kNow);
  CHECK(world.ready() == "5");
  world.coordinator.add(1, world.in_full(1), kNow);
  CHECK(world.ready() == "!t1 !t2 !t3");
  CHECK_THAT(world.error,
             Contains("rank 0 has a prepared set of 3 tensors, rank 1 has one tensor"));
  world.ask(0, 4);
  CHECK(world.ready() == "4");
  CHECK_FALSE(world.coordinator.anything_waiting());
}
