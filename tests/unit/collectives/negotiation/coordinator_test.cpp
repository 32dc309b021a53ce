// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/coordinator.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

const Coordinator::TimePoint kNow{};

Request reduce(const std::string& name, std::vector<std::int64_t> shape = {2, 3}) {
  Request request;
  request.action = Action::kAllreduce;
  request.dtype = HORA_FLOAT32;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

std::vector<Response> take_ready(Coordinator& coordinator) {
  std::vector<Response> responses;
  for (const Coordinator::Ready& each : coordinator.take_ready()) {
    responses.push_back(each.response());
  }
  return responses;
}

// The error of an operation for which rank 0 asks `mine` and rank 1 `theirs`.
std::string mismatch_of(const Request& mine, const Request& theirs) {
  Coordinator coordinator(2);
  coordinator.add(0, mine, kNow);
  CHECK(take_ready(coordinator).empty());
  coordinator.add(1, theirs, kNow);
  const auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK((responses[0].status == HORA_MISMATCH) == !responses[0].error.empty());
  return responses[0].error;
}

}  // namespace

TEST_CASE("coordinator: an operation is ready when the last rank asks, whatever the order") {
  Coordinator coordinator(3);
  coordinator.add(2, reduce("b"), kNow);
  coordinator.add(0, reduce("a"), kNow);
  coordinator.add(1, reduce("a"), kNow);
  coordinator.add(1, reduce("b"), kNow);
  CHECK(take_ready(coordinator).empty());
  coordinator.add(0, reduce("b"), kNow);
  coordinator.add(2, reduce("a"), kNow);
  const auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 2);
  CHECK(responses[0].agreed.name == "b");
  CHECK(responses[1].agreed.name == "a");
  CHECK(take_ready(coordinator).empty());
}

TEST_CASE("coordinator: reductions wait for what is on its way, no longer than they may") {
  using std::chrono::microseconds;
  const auto wait = [](Coordinator& coordinator, int us, std::int64_t enough = 1000) {
    return coordinator.wait_for_more(kNow + microseconds(us), microseconds(100), enough);
  };
  Coordinator coordinator(2);
  CHECK(!wait(coordinator, 0));
  for (const int rank : {0, 1}) coordinator.add(rank, reduce("a"), kNow);
  CHECK(!wait(coordinator, 0));  // nothing else is wanted
  coordinator.add(1, reduce("b"), kNow);
  CHECK(wait(coordinator, 10) == kNow + microseconds(110));
  CHECK(wait(coordinator, 60) == kNow + microseconds(110));
  CHECK(!wait(coordinator, 60, 24));  // what is there is enough
  CHECK(!wait(coordinator, 110));
  CHECK(take_ready(coordinator).size() == 1);
  coordinator.add(0, reduce("b"), kNow);
  coordinator.add(0, reduce("c"), kNow);
  CHECK(wait(coordinator, 200) == kNow + microseconds(300));  // counted again

  Request other = reduce("d");
  other.action = Action::kBroadcast;
  for (const int rank : {0, 1}) coordinator.add(rank, other, kNow);
  CHECK(!wait(coordinator, 210));  // operations after it would wait as well
}

TEST_CASE("coordinator: larger priorities first, otherwise in the order of readiness") {
  Coordinator coordinator(1);
  for (const auto& [name, priority] :
       std::vector<std::pair<std::string, int>>{{"a", 0}, {"b", 5}, {"c", 0}, {"d", 5}}) {
    Request request = reduce(name);
    request.priority = priority;
    coordinator.add(0, request, kNow);
  }
  std::string order;
  for (const Response& response : take_ready(coordinator)) order += response.agreed.name;
  CHECK(order == "bdac");
}

TEST_CASE("coordinator: the same name in two process sets is two operations") {
  Coordinator coordinator(3);
  const std::int32_t set = coordinator.add_set({0, 2});
  CHECK(set == 1);
  Request inside = reduce("x");
  inside.process_set = set;
  coordinator.add(0, inside, kNow);
  coordinator.add(0, reduce("x"), kNow);
  coordinator.add(1, reduce("x"), kNow);
  CHECK(take_ready(coordinator).empty());
  coordinator.add(2, inside, kNow);
  const auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].agreed.process_set == set);
}

TEST_CASE("coordinator: allgather reports the rows of all ranks, alltoall their splits") {
  Coordinator coordinator(2);
  for (int rank = 0; rank < 2; ++rank) {
    Request gather = reduce("g", {rank + 4, 3});
    gather.action = Action::kAllgather;
    coordinator.add(rank, gather, kNow);
    Request exchange = reduce("e", {3, 2});
    exchange.action = Action::kAlltoall;
    exchange.splits = {rank, 3 - rank};
    coordinator.add(rank, exchange, kNow);
  }
  const auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 2);
  CHECK(responses[0].numbers == std::vector<std::int64_t>{4, 5});
  CHECK(responses[1].all_splits == std::vector<std::int64_t>{0, 3, 1, 2});
}

TEST_CASE("mismatch: names the tensor, both ranks and both values") {
  Request mine = reduce("layer.weight");
  SECTION("dtype") {
    Request theirs = mine;
    theirs.dtype = HORA_FLOAT64;
    CHECK(mismatch_of(mine, theirs) ==
          "allreduce 'layer.weight': the dtype differs: rank 0 has float32, rank 1 has float64");
  }
  SECTION("operation") {
    Request theirs = mine;
    theirs.action = Action::kBroadcast;
    CHECK(mismatch_of(mine, theirs) ==
          "'layer.weight': the operation differs: rank 0 has allreduce, rank 1 has broadcast");
  }
  SECTION("shape") {
    for (Action action : {Action::kAllreduce, Action::kBroadcast, Action::kReducescatter}) {
      mine.action = action;
      Request theirs = mine;
      theirs.shape = {3, 2};
      CHECK_THAT(mismatch_of(mine, theirs),
                 Contains("the shape differs: rank 0 has [2, 3], rank 1 has [3, 2]"));
    }
  }
  SECTION("scale") {
    Request theirs = mine;
    theirs.postscale = 0.5;
    CHECK_THAT(mismatch_of(mine, theirs),
               Contains("rank 0 has prescale 1 and postscale 1, rank 1 has prescale 1 and "
                        "postscale 0.5"));
    mine.postscale = theirs.postscale = std::nan("");
    CHECK(mismatch_of(mine, theirs).empty());
    mine.postscale = 1;
    CHECK_THAT(mismatch_of(mine, theirs), Contains("rank 1 has prescale 1 and postscale nan"));
  }
  SECTION("reduction") {
    Request theirs = mine;
    theirs.reduce_op = HORA_MAX;
    CHECK_THAT(mismatch_of(mine, theirs), Contains("rank 0 has sum, rank 1 has max"));
  }
  SECTION("root") {
    mine.action = Action::kBroadcast;
    mine.root = 0;
    Request theirs = mine;
    theirs.root = 1;
    CHECK_THAT(mismatch_of(mine, theirs),
               Contains("the root rank differs: rank 0 has 0, rank 1 has 1"));
  }
  SECTION("device") {
    Request theirs = mine;
    theirs.device = 0;
    CHECK_THAT(mismatch_of(mine, theirs), Contains("rank 0 has CPU, rank 1 has GPU"));
    mine.device = 3;  // another GPU on each rank is as it should be
    CHECK(mismatch_of(mine, theirs).empty());
  }
  SECTION("allgather: dimensions but the first") {
    mine.action = Action::kAllgather;
    Request theirs = mine;
    theirs.shape = {9, 3};
    CHECK(mismatch_of(mine, theirs).empty());
    theirs.shape = {2, 4};
    CHECK_THAT(mismatch_of(mine, theirs), Contains("dimension 1 differs"));
    theirs.shape = {2};
    CHECK_THAT(mismatch_of(mine, theirs),
               Contains("the number of dimensions differs: rank 0 has 2, rank 1 has 1"));
  }
}

TEST_CASE("groups: all or none") {
  const auto member = [](const std::string& name, const std::string& group, int size) {
    Request request = reduce(name);
    request.group = group;
    request.group_size = size;
    return request;
  };
  Coordinator coordinator(2);
  SECTION("the members become ready together") {
    coordinator.add(0, member("x", "x", 2), kNow);
    coordinator.add(0, member("y", "x", 2), kNow);
    coordinator.add(1, member("x", "x", 2), kNow);
    CHECK(take_ready(coordinator).empty());
    coordinator.add(1, member("y", "x", 2), kNow);
    CHECK(take_ready(coordinator).size() == 2);
  }
  SECTION("a mismatch of one member fails all members") {
    Request other = member("y", "x", 2);
    other.dtype = HORA_INT8;
    for (int rank = 0; rank < 2; ++rank) {
      coordinator.add(rank, member("x", "x", 2), kNow);
      coordinator.add(rank, rank == 0 ? other : member("y", "x", 2), kNow);
    }
    const auto responses = take_ready(coordinator);
    REQUIRE(responses.size() == 2);
    CHECK(responses[0].status == HORA_MISMATCH);
    CHECK(responses[1].error == responses[0].error);
  }
  SECTION("no rank waits for a member that only some ranks have put into the group") {
    const int first = GENERATE(0, 1);
    for (const int rank : {first, 1 - first}) {
      const int size = rank == 0 ? 3 : 2;
      coordinator.add(rank, member("x", "x", size), kNow);
      coordinator.add(rank, member("y", "x", size), kNow);
      if (rank == 0) coordinator.add(rank, member("z", "x", size), kNow);
    }
    const auto responses = take_ready(coordinator);
    CHECK(responses.size() == 3);
    for (const Response& each : responses) {
      CHECK_THAT(each.error, Contains("group of 3") && Contains("group of 2"));
    }
    CHECK_FALSE(coordinator.anything_waiting());
  }
  SECTION("ranks that disagree about the group get an error for all of it") {
    coordinator.add(0, reduce("x"), kNow);
    coordinator.add(1, member("x", "x", 2), kNow);
    coordinator.add(1, member("y", "x", 2), kNow);
    const auto responses = take_ready(coordinator);
    REQUIRE(responses.size() == 2);
    for (const Response& response : responses) {
      CHECK(response.status == HORA_MISMATCH);
      CHECK_THAT(response.error, Contains("rank 0 has no group, rank 1 has the group of 2"));
    }
  }
  SECTION("the other way round") {
    coordinator.add(1, member("x", "x", 2), kNow);
    coordinator.add(1, member("y", "x", 2), kNow);
    coordinator.add(0, reduce("x"), kNow);
    CHECK(take_ready(coordinator).size() == 2);
  }
}

TEST_CASE("join: a rank that has no more data does not hold up the others") {
  Coordinator coordinator(3);
  Request join;
  join.action = Action::kJoin;
  coordinator.add(0, reduce("before"), kNow);
  coordinator.add(1, reduce("before"), kNow);
  coordinator.add(2, join, kNow);
  auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].joined == std::vector<std::int32_t>{2});

  Request gather = reduce("g");
  gather.action = Action::kAllgather;
  coordinator.add(0, gather, kNow);
  coordinator.add(1, gather, kNow);
  responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].status == HORA_MISMATCH);
  CHECK_THAT(responses[0].error, Contains("cannot run while a rank has joined"));

  coordinator.add(1, join, kNow);
  CHECK(take_ready(coordinator).empty());
  coordinator.add(0, join, kNow);
  responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].agreed.action == Action::kJoin);
  CHECK(responses[0].numbers == std::vector<std::int64_t>{0});

  coordinator.add(0, reduce("after"), kNow);  // all are back
  coordinator.add(1, reduce("after"), kNow);
  CHECK(take_ready(coordinator).empty());
  coordinator.add(2, reduce("after"), kNow);
  CHECK(take_ready(coordinator).size() == 1);
}

TEST_CASE("join: an operation that the joined rank had asked for still counts it") {
  Coordinator coordinator(2);
  Request join;
  join.action = Action::kJoin;
  coordinator.add(0, reduce("x"), kNow);
  coordinator.add(0, join, kNow);
  CHECK(take_ready(coordinator).empty());
  coordinator.add(1, reduce("x"), kNow);
  const auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].joined.empty());
}

// They give what changes nothing; once it is scaled, it may.
TEST_CASE("join: what the joined ranks give changes nothing, or is refused") {
  const auto error_of = [](hora_reduce_op op, double prescale) {
    Coordinator coordinator(2);
    Request join;
    join.action = Action::kJoin;
    coordinator.add(1, join, kNow);
    Request request = reduce("x");
    request.reduce_op = op;
    request.prescale = prescale;
    coordinator.add(0, request, kNow);
    const auto responses = take_ready(coordinator);
    REQUIRE(responses.size() == 1);
    CHECK((responses[0].status == HORA_MISMATCH) == !responses[0].error.empty());
    return responses[0].error;
  };
  CHECK(error_of(HORA_SUM, -2).empty());
  CHECK(error_of(HORA_AVERAGE, 0).empty());
  CHECK(error_of(HORA_PRODUCT, 1).empty());
  CHECK_THAT(error_of(HORA_PRODUCT, 2), Contains("'x': a product of tensors with this prescale"));
  for (const hora_reduce_op op : {HORA_MIN, HORA_MAX}) {
    CHECK(error_of(op, 0.5).empty());
    CHECK_THAT(error_of(op, 0), Contains("prescale"));
    CHECK_THAT(error_of(op, -1), Contains("prescale"));
  }
}

// What was started before it and is not waited for yet.
TEST_CASE("join: the last one completes what others asked for, and they contribute nothing") {
  Coordinator coordinator(3);
  Request join;
  join.action = Action::kJoin;
  coordinator.add(0, reduce("mine"), kNow);
  coordinator.add(1, join, kNow);
  coordinator.add(2, reduce("ours"), kNow);
  coordinator.add(0, reduce("ours"), kNow);
  coordinator.add(0, join, kNow);
  coordinator.add(2, join, kNow);
  const auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 3);
  CHECK(responses[0].agreed.name == "ours");
  CHECK(responses[0].joined == std::vector<std::int32_t>{1});
  CHECK(responses[1].agreed.name == "mine");
  CHECK(responses[1].joined == std::vector<std::int32_t>{1, 2});
  CHECK(responses[2].agreed.action == Action::kJoin);
}

TEST_CASE("process sets: found, or made, as soon as one rank asks") {
  Coordinator coordinator(3);
  Request ask;
  ask.action = Action::kProcessSetOf;
  ask.name = "hora.rank.1.0";
  ask.shape = {1, 2};
  coordinator.add(1, ask, kNow);
  auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].agreed.name == "hora.rank.1.0");
  CHECK(responses[0].numbers == std::vector<std::int64_t>{1});

  ask.name = "hora.rank.2.0";
  coordinator.add(2, ask, kNow);
  ask.shape = {0, 1, 2};
  coordinator.add(2, ask, kNow);
  responses = take_ready(coordinator);
  REQUIRE(responses.size() == 2);
  CHECK(responses[0].numbers == std::vector<std::int64_t>{1});
  CHECK(responses[1].numbers == std::vector<std::int64_t>{0});
  CHECK(!coordinator.anything_waiting());
}

TEST_CASE("process sets: added and removed by all ranks of the world") {
  Coordinator coordinator(2);
  Request add;
  add.action = Action::kAddProcessSet;
  add.name = "hora.world.0";
  add.shape = {1};
  coordinator.add(0, add, kNow);
  coordinator.add(1, add, kNow);
  auto responses = take_ready(coordinator);
  REQUIRE(responses.size() == 1);
  CHECK(responses[0].numbers == std::vector<std::int64_t>{1});

  add.name = "hora.world.1";  // the same again
  coordinator.add(0, add, kNow);
  coordinator.add(1, add, kNow);
  CHECK(take_ready(coordinator).at(0).status == HORA_INVALID_ARGUMENT);

  Request remove = add;
  remove.action = Action::kRemoveProcessSet;
  remove.name = "hora.world.2";
  coordinator.add(0, remove, kNow);
  remove.shape = {2};
  coordinator.add(1, remove, kNow);
  responses = take_ready(coordinator);
  CHECK(responses.at(0).status == HORA_MISMATCH);
}

TEST_CASE("waiting: names the missing ranks and since when") {
  Coordinator coordinator(3);
  const auto later = kNow + std::chrono::seconds(5);
  coordinator.add(1, reduce("old"), kNow);
  coordinator.add(0, reduce("new"), later);
  coordinator.add(2, reduce("new"), later);
  const auto waiting = coordinator.waiting();
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0].name == "old");
  CHECK(waiting[0].missing == std::vector<std::int32_t>{0, 2});
  CHECK(waiting[1].since == later);
  CHECK(waiting[1].missing == std::vector<std::int32_t>{1});
}
