// SPDX-License-Identifier: Apache-2.0
// A rank's repeated requests in one message: which lists are kept, and how rank 0 counts them as a
// whole until a rank deviates.
#include "collectives/negotiation/sequence.h"

#include <functional>

#include "collectives/negotiation/coordinator.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

constexpr std::size_t kTensors = 10;
const Coordinator::TimePoint kNow{};

Response response_for(std::size_t tensor) {
  Response response;
  response.agreed.action = Action::kAllreduce;
  response.agreed.dtype = HORA_FLOAT32;
  response.agreed.name = "t" + std::to_string(tensor);
  response.agreed.shape = {4};
  return response;
}

// A cache that has learned kTensors tensors; `change` makes them special.
struct Learned {
  explicit Learned(const std::function<void(std::size_t, Request&)>& change = nullptr) {
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
      Response response = response_for(tensor);
      if (change) change(tensor, response.agreed);
      cache.learn(response, &response.agreed);
      numbers.push_back(cache.number_of(response.agreed.name));
    }
  }
  const SequencePtr& keep(std::vector<CacheId> some) {
    const CacheId first = some.front();
    const std::size_t size = some.size();
    sequences.keep(0, std::move(some), cache);
    return sequences.find(0, first, size);
  }

  ResponseCache cache{100};
  std::vector<CacheId> numbers;
  Sequences sequences;
};

// A world whose ranks may ask for the sequence.
struct World : Learned {
  explicit World(int size, const std::function<void(std::size_t, Request&)>& change = nullptr)
      : Learned(change), coordinator(size), sequence(keep(numbers)) {
    REQUIRE(sequence != nullptr);
  }
  bool ask(int rank) { return coordinator.add_together(rank, sequence, kNow); }
  void ask_each(int rank) {
    for (const CacheId number : numbers) {
      REQUIRE(coordinator.add_known(rank, number, *cache.response_of(number), kNow));
    }
  }
  // "t0 t1 !t2": errors with a mark.
  std::string ready() {
    std::string text;
    for (const Coordinator::Ready& each : coordinator.take_ready()) {
      const Response& response = each.response();
      text += std::string(text.empty() ? "" : " ") + (response.status == HORA_OK ? "" : "!") +
              response.agreed.name;
    }
    return text;
  }

  Coordinator coordinator;
  SequencePtr sequence;
};

constexpr const char* kAll = "t0 t1 t2 t3 t4 t5 t6 t7 t8 t9";

}  // namespace

TEST_CASE("sequence: a list is found by its beginning and by its message") {
  Learned learned;
  const SequencePtr kept = learned.keep(learned.numbers);
  REQUIRE(kept != nullptr);
  CHECK(kept->numbers == learned.numbers);
  CHECK(kept->responses.back() == learned.cache.response_of(learned.numbers.back()));
  CHECK(kept->reduced_bytes == 16 * kTensors);
  CHECK(learned.sequences.find(kept->message) == kept);
  CHECK(learned.sequences.find(kept->message + "x") == nullptr);
  CHECK(learned.sequences.find(1, learned.numbers.front(), kTensors) == nullptr);
  // Another list that begins like it takes its place.
  std::vector<CacheId> other = learned.numbers;
  std::swap(other[1], other[2]);
  const SequencePtr next = learned.keep(other);
  REQUIRE(next != nullptr);
  CHECK(next->numbers == other);
  CHECK(learned.sequences.find(kept->message) == nullptr);
}

TEST_CASE("sequence: short lists, several priorities and parts of groups make none") {
  Learned plain;
  CHECK(plain.keep({plain.numbers.begin(), plain.numbers.begin() + 3}) == nullptr);
  Learned urgent([](std::size_t tensor, Request& request) { request.priority = tensor == 3; });
  CHECK(urgent.keep(urgent.numbers) == nullptr);
  const auto grouped = [](std::size_t tensor, Request& request) {
    if (tensor < 7) return;
    request.group = "t7";
    request.group_size = 3;
  };
  Learned groups(grouped);
  CHECK(groups.keep(groups.numbers) != nullptr);
  groups.numbers.pop_back();
  CHECK(groups.keep(groups.numbers) == nullptr);
}

TEST_CASE("sequence: what all ranks have asked for as a whole is ready as a whole") {
  World world(3);
  CHECK(world.ask(2));
  CHECK(world.coordinator.anything_waiting());
  const auto waiting = world.coordinator.waiting();
  REQUIRE(waiting.size() == kTensors);
  CHECK(waiting.back().missing == std::vector<std::int32_t>{0, 1});
  CHECK(world.ask(0));
  CHECK(world.coordinator.take_ready_together() == nullptr);
  CHECK(world.ready().empty());
  CHECK(world.ask(1));
  CHECK(world.coordinator.take_ready_together() == world.sequence);
  CHECK_FALSE(world.coordinator.anything_waiting());
  CHECK(world.coordinator.last_asked(1)->name == "t9");
  for (const int rank : {0, 1, 2}) CHECK(world.ask(rank));
  CHECK(world.ready() == kAll);
}

TEST_CASE("sequence: a rank that asks for each of it meets those that asked for the whole") {
  for (const int one_by_one : {0, 1, 2}) {
    World world(3);
    for (const int rank : {0, 1, 2}) {
      // A rank that asks for the whole without success asks for each, as the caller does.
      if (rank == one_by_one || !world.ask(rank)) world.ask_each(rank);
    }
    CHECK(world.coordinator.take_ready_together() == nullptr);
    CHECK(world.ready() == kAll);
  }
}

TEST_CASE("sequence: in the middle of it a rank asks for another shape") {
  World world(2);
  CHECK(world.ask(0));
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    Request request = response_for(tensor).agreed;
    if (tensor == 4) request.shape = {5};
    world.coordinator.spell_out(0, world.numbers[tensor]);
    world.coordinator.add(1, std::move(request), kNow);
  }
  CHECK(world.ready() == "t0 t1 t2 t3 !t4 t5 t6 t7 t8 t9");
}

TEST_CASE("sequence: one of its numbers is forgotten, or a rank joins, while it waits") {
  World world(2);
  CHECK(world.ask(0));
  world.coordinator.spell_out(0, world.numbers[4]);
  CHECK_FALSE(world.ask(1));
  world.ask_each(1);
  CHECK(world.ready() == kAll);
  CHECK(world.ask(0));
  Request join;
  join.action = Action::kJoin;
  join.name = "hora.join";
  world.coordinator.add(1, join, kNow);
  CHECK(world.ready() == kAll);
  CHECK_FALSE(world.ask(0));
}

TEST_CASE("sequence: groups that are in it as a whole are counted with it") {
  const auto grouped = [](std::size_t, Request& request) {
    request.group = "t0";
    request.group_size = kTensors;
  };
  World world(2, grouped);
  CHECK(world.ask(0));
  CHECK(world.ask(1));
  CHECK(world.coordinator.take_ready_together() == world.sequence);
  CHECK(world.ask(1));
  world.ask_each(0);
  CHECK(world.ready() == kAll);
}

TEST_CASE("sequence: not taken as a whole together with something else that is ready") {
  World world(2);
  Response other = response_for(99);
  for (const int rank : {0, 1}) CHECK(world.ask(rank));
  for (const int rank : {0, 1}) world.coordinator.add_known(rank, 1000, other, kNow);
  CHECK(world.coordinator.take_ready_together() == nullptr);
  CHECK(world.ready() == std::string(kAll) + " t99");
}

TEST_CASE("sequence: not taken as a whole before what is ready in another set") {
  const bool by_number = GENERATE(true, false);
  World world(2);
  Response other = response_for(99);
  other.agreed.process_set = world.coordinator.add_set({0, 1});
  for (const int rank : {0, 1}) {
    if (by_number) {
      REQUIRE(world.coordinator.add_known(rank, 1000, other, kNow));
    } else {
      world.coordinator.add(rank, other.agreed, kNow);
    }
  }
  for (const int rank : {0, 1}) CHECK(world.ask(rank));
  CHECK(world.coordinator.take_ready_together() == nullptr);
  CHECK(world.ready() == "t99 " + std::string(kAll));
}

TEST_CASE("sequence: it waits for more, and lets others wait, like its members") {
  World world(2);
  using std::chrono::microseconds;
  for (const int rank : {0, 1}) CHECK(world.ask(rank));
  CHECK_FALSE(world.coordinator.wait_for_more(kNow, microseconds(10), 1 << 20));
  world.coordinator.add_set({0, 1});
  Request more = response_for(50).agreed;
  more.process_set = 1;
  world.coordinator.add(0, more, kNow);
  CHECK(world.coordinator.wait_for_more(kNow, microseconds(10), 1 << 20));
  CHECK_FALSE(world.coordinator.wait_for_more(kNow, microseconds(10), 16 * kTensors));
}

TEST_CASE("sequence: the cache keeps the order in which its members were used") {
  Learned learned;
  ResponseCache& cache = learned.cache;
  const auto kept = [&](const std::string& name) { return cache.number_of(name) != 0; };
  cache.learn_again(learned.numbers, 0);
  const std::uint64_t learned_then = cache.learned();
  cache.learn_again(learned.numbers, learned_then);
  CHECK(cache.learned() == learned_then);
  cache.learn_again(learned.numbers.front(), nullptr);
  CHECK(cache.learned() != learned_then);
  cache.learn_again(learned.numbers, learned_then);
  // The first is the oldest again: 90 more fit with the ten, the next one pushes it out.
  for (std::size_t tensor = 100; tensor < 191; ++tensor) {
    cache.learn(response_for(tensor), nullptr);
  }
  CHECK_FALSE(kept("t0"));
  CHECK(kept("t1"));
  CHECK(cache.forgotten() == 1);
}
