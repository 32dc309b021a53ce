// SPDX-License-Identifier: Apache-2.0
// Submitting what was submitted before: the queue uses the operations of the last time, as long as
// nothing has changed but the memory.
#include "collectives/runtime/request_queue.h"

#include "collectives/runtime/request_check.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

using Push = RequestQueue::Push;

// A caller that reduces tensors of four floats, and what the runtime does with them.
struct Caller {
  RequestQueue queue;
  std::vector<std::int32_t> ranks{0, 1};
  float value[4] = {};
  std::int64_t extent = 4;
  hora_handle next_handle = 1;
  std::vector<OperationPtr> in_flight;

  hora_request request(const char* name) {
    hora_request made = {};
    made.struct_size = sizeof made;
    made.operation = HORA_ALLREDUCE;
    made.name = name;
    made.input = {value, &extent, 1, HORA_FLOAT32, HORA_CPU_DEVICE, 0};
    made.output = made.input;
    made.reduce_op = HORA_SUM;
    made.prescale = made.postscale = 1;
    return made;
  }
  Push push(const std::vector<hora_request>& requests) {
    std::vector<OperationPtr> operations;
    for (const hora_request& each : requests) {
      auto made = check_request(each, ranks, 0);
      REQUIRE(made);
      (*made)->handle = next_handle++;
      (*made)->name_hash = name_hash(0, each.name);
      if (requests.size() > 1) {
        (*made)->request.group = requests.front().name;
        (*made)->request.group_size = static_cast<std::int32_t>(requests.size());
      }
      operations.push_back(std::move(*made));
    }
    std::string detail;
    const Push how = queue.push(operations, detail);
    take();
    return how;
  }
  Push push_again(const std::vector<hora_request>& requests) {
    const Push how = queue.push_again(requests, false, [](std::span<const OperationPtr>) {});
    take();
    return how;
  }
  void take() {
    std::vector<OperationPtr> taken;
    queue.take(taken);
    for (OperationPtr& each : taken) in_flight.push_back(std::move(each));
  }
  void finish() { queue.finish(std::exchange(in_flight, {}), HORA_OK, {}); }
  // Twice, so that the queue knows them.
  void learn(const std::vector<const char*>& names) {
    for (int round = 0; round < 2; ++round) {
      for (const char* name : names) {
        REQUIRE(push({request(name)}) != Push::kDuplicate);
        finish();
      }
    }
  }
};

}  // namespace

TEST_CASE("queue: what follows as the last time is submitted once more, on other memory") {
  Caller caller;
  caller.learn({"a", "b", "c"});
  float other[4] = {};
  for (int round = 0; round < 2; ++round) {
    for (const char* name : {"a", "b", "c"}) {
      hora_request request = caller.request(name);
      request.input.data = request.output.data = other;
      CHECK(caller.push_again({request}) ==
            (*name == 'a' ? Push::kQueuedAlone : Push::kQueuedFirst));
      CHECK(caller.in_flight.back()->request.name == name);
      CHECK(caller.in_flight.back()->input == other);
      CHECK(caller.in_flight.back()->output == other);
      CHECK_FALSE(caller.in_flight.back()->done());
    }
    caller.finish();
  }
}

TEST_CASE("queue: another order, another field or another name is for push()") {
  Caller caller;
  caller.learn({"a", "b"});
  std::vector<hora_request> others(14, caller.request("a"));
  const std::int64_t five = 5;
  const std::int64_t two_by_two[] = {2, 2};
  others[0].name = "b";
  others[1].name = "aa";
  others[2].input.shape = others[2].output.shape = &five;
  others[3].input.shape = others[3].output.shape = two_by_two;
  others[3].input.ndim = others[3].output.ndim = 2;
  others[4].input.dtype = others[4].output.dtype = HORA_INT32;
  others[5].reduce_op = HORA_MAX;
  others[6].prescale = 0.5;
  others[7].postscale = 0.5;
  others[8].priority = 1;
  others[9].operation = HORA_BROADCAST;
  others[10].process_set = 1;
  others[11].output.shape = &five;
  others[12].output.data = nullptr;
  others[13].name = nullptr;
  for (const hora_request& each : others) {
    CAPTURE(&each - others.data());
    CHECK(caller.push_again({each}) == Push::kNotAgain);
  }
  CHECK(caller.in_flight.empty());
  CHECK(caller.push_again({caller.request("a")}) == Push::kQueuedAlone);
}

TEST_CASE("queue: an operation that still has an owner is not used again") {
  Caller caller;
  caller.learn({"a"});
  CHECK(caller.push_again({caller.request("a")}) == Push::kQueuedAlone);
  CHECK(caller.push_again({caller.request("a")}) == Push::kNotAgain);  // in flight
  CHECK(caller.push({caller.request("a")}) == Push::kDuplicate);
  const OperationPtr held = caller.in_flight.front();  // its handle has not been released
  caller.finish();
  CHECK(caller.push_again({caller.request("a")}) == Push::kNotAgain);
  CHECK(held->done());
}

TEST_CASE("queue: a group is submitted once more as a whole") {
  Caller caller;
  const std::vector<hora_request> group{caller.request("a"), caller.request("b"),
                                        caller.request("c")};
  for (int round = 0; round < 2; ++round) {
    CHECK(caller.push(group) == Push::kQueuedAlone);
    caller.finish();
  }
  CHECK(caller.push_again({group.front()}) == Push::kNotAgain);       // alone it is another request
  CHECK(caller.push_again({group[0], group[1]}) == Push::kNotAgain);  // as is one without its end
  CHECK(caller.push_again({group[0], group[1], group[2], caller.request("d")}) == Push::kNotAgain);
  CHECK(caller.push_again({group[0], group[1], caller.request("d")}) == Push::kNotAgain);
  CHECK(caller.in_flight.empty());
  CHECK(caller.push_again(group) == Push::kQueuedAlone);
  REQUIRE(caller.in_flight.size() == 3);
  CHECK(caller.in_flight[2]->request.group == "a");
}

TEST_CASE("queue: names that come once leave their operations to others") {
  Caller caller;
  std::vector<std::string> names;
  for (int i = 0; i < 10'000; ++i) names.push_back("once." + std::to_string(i));
  for (const std::string& name : names) {
    CHECK(caller.push({caller.request(name.c_str())}) == Push::kQueuedAlone);
    caller.finish();
    CHECK(caller.push_again({caller.request(name.c_str())}) == Push::kNotAgain);
  }
}

TEST_CASE("queue: a result goes with its handle, also where the name comes again") {
  Caller caller;
  hora_request gather = caller.request("gather");
  gather.operation = HORA_ALLGATHER;
  gather.output = {};
  for (int round = 0; round < 3; ++round) {
    CHECK(caller.push({gather}) == Push::kQueuedAlone);
    const OperationPtr held = caller.in_flight.front();
    caller.finish();
    CHECK(held.alone());
  }
}

TEST_CASE("queue: nothing is accepted again after its end") {
  Caller caller;
  caller.learn({"a"});
  CHECK(caller.queue.close("the end").empty());
  CHECK(caller.push_again({caller.request("a")}) == Push::kNotAgain);
}
