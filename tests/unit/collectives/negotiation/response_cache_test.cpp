// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/response_cache.h"

#include <deque>
#include <map>
#include <random>

#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/wire.h"
#include "tests/support/catch.h"
#include "tests/support/wishes.h"

using namespace hora::collectives;
using namespace hora::test;

namespace {

Request reduce(const std::string& name, std::vector<std::int64_t> shape = {4}) {
  Request request;
  request.action = Action::kAllreduce;
  request.dtype = HORA_FLOAT32;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

Response agreed_on(const Request& request) {
  Response response;
  response.agreed = request;
  return response;
}

}  // namespace

TEST_CASE("cache: the same request has a number; anything else about it has none") {
  ResponseCache cache(8);
  const Request request = reduce("x");
  CHECK(cache.find(request) == 0);
  cache.learn(agreed_on(request), &request);
  const CacheId id = cache.find(request);
  CHECK(id != 0);
  CHECK(cache.find(agreed_on(request)) == id);
  REQUIRE(cache.response_of(id) != nullptr);
  CHECK(*cache.response_of(id) == agreed_on(request));
  CHECK(request_of(*cache.response_of(id), 0) == request);
  CHECK(cache.find(request, id) == id);
  CHECK(cache.find(request, id + 1) == id);
  CHECK(cache.number_of("x") == id);
  CHECK(cache.find(reduce("x", {5})) == 0);
  Request other = request;
  other.dtype = HORA_INT32;
  CHECK(cache.find(other) == 0);
  other = request;
  other.prescale = 0.5;
  CHECK(cache.find(other) == 0);
  other = request;
  other.group = "g";
  CHECK(cache.find(other) == 0);
}

TEST_CASE("cache: what changes gets a new number, and the old one means nothing any more") {
  ResponseCache cache(8);
  const Request before = reduce("x");
  const Request after = reduce("x", {7});
  cache.learn(agreed_on(before), &before);
  const CacheId old = cache.find(before);
  cache.learn(agreed_on(after), &after);
  CHECK(cache.find(before) == 0);
  CHECK(cache.find(after) > old);
  CHECK(cache.response_of(old) == nullptr);
  CHECK(cache.size() == 1);
}

TEST_CASE(
    "cache: errors, joined ranks, barriers and joins are not kept; nor is anything without room") {
  ResponseCache cache(8);
  const Request request = reduce("x");
  Response response = agreed_on(request);
  response.status = HORA_MISMATCH;
  cache.learn(response, &request);
  response = agreed_on(request);
  response.joined = {1};
  cache.learn(response, &request);
  for (Action action :
       {Action::kBarrier, Action::kJoin, Action::kShutdown, Action::kAddProcessSet}) {
    response = agreed_on(request);
    response.agreed.action = action;
    cache.learn(response, &request);
  }
  CHECK(cache.size() == 0);
  ResponseCache off(0);
  off.learn(agreed_on(request), &request);
  CHECK(off.size() == 0);
}

TEST_CASE("cache: the one used least recently goes first") {
  ResponseCache cache(2);
  const Request a = reduce("a");
  const Request b = reduce("b");
  const Request c = reduce("c");
  cache.learn(agreed_on(a), &a);
  cache.learn(agreed_on(b), &b);
  cache.learn_again(cache.find(a), &a);
  cache.learn(agreed_on(c), &c);
  CHECK(cache.find(a) != 0);
  CHECK(cache.find(b) == 0);
  CHECK(cache.find(c) != 0);
  CHECK(cache.size() == 2);
}

TEST_CASE("cache: each rank's own part of a gathering and of an exchange") {
  ResponseCache cache(2);
  Request gather = reduce("g", {1, 3});
  gather.action = Action::kAllgather;
  Response response = agreed_on(gather);
  response.numbers = {1, 5};
  cache.learn(response, nullptr);
  const CacheId id = cache.find(response);
  CHECK(request_of(*cache.response_of(id), 1)->shape == std::vector<std::int64_t>{5, 3});
  CHECK_FALSE(request_of(*cache.response_of(id), 2));
  CHECK_FALSE(request_of(*cache.response_of(id), -1));
  Request exchange = reduce("e", {3, 3});
  exchange.action = Action::kAlltoall;
  response = agreed_on(exchange);
  response.all_splits = {1, 2, 3, 4};
  cache.learn(response, nullptr);
  const auto second = request_of(*cache.response_of(cache.find(response)), 1);
  CHECK(second->splits == std::vector<std::int64_t>{3, 4});
  CHECK(second->shape == std::vector<std::int64_t>{7, 3});
}

// Ranks that talk to rank 0 over queues of any delay, as the engine does: whatever a number stands
// for must be what its sender meant, on both ways.
TEST_CASE(
    "cache: random schedules, delays and evictions; every number means the same on both sides") {
  constexpr int kRanks = 5;
  constexpr int kNames = 14;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const std::size_t capacity = seed % 3 == 0 ? 3 : seed % 3 == 1 ? 9 : 100;
    struct Submitted {
      Wish wish;
      Request meant;
    };
    struct Recorded {
      CacheId id;
      Response response;  // in full, as rank 0 means it
      std::optional<std::uint64_t> again;
    };
    struct Rank {
      ResponseCache cache;
      std::map<std::string, Request> pending;
      std::map<std::string, CacheId> asked_as;
      std::deque<Submitted> to_coordinator;
      std::deque<Recorded> from_coordinator;
      std::map<std::string, int> rounds;  // of each name
    };
    std::vector<Rank> ranks(kRanks);
    for (Rank& rank : ranks) rank.cache = ResponseCache(capacity);
    ResponseCache central(capacity);
    Coordinator coordinator(kRanks);
    int by_number = 0;
    int again = 0;
    int counted = 0;
    // The shape of a name in its n-th round, the same on every rank; changes now and then.
    const auto request_for = [&](const std::string& name, int round) {
      Request request = reduce(name, {1 + (round / 7) % 3});
      request.root = -1;
      return request;
    };
    for (int turn = 0; turn < 20'000; ++turn) {
      const auto at = random() % kRanks;
      Rank& rank = ranks[at];
      switch (random() % 4) {
        case 0: {  // asks for something
          const std::string name = "t" + std::to_string(random() % kNames);
          if (rank.pending.count(name) != 0) break;
          const Request request = request_for(name, rank.rounds[name]++);
          const CacheId id = rank.cache.find(request);
          rank.pending[name] = request;
          rank.asked_as[name] = id;
          if (id != 0) ++by_number;
          rank.to_coordinator.push_back(
              {id != 0 ? Wish(Reference{0, id}) : Wish(request), request});
          break;
        }
        case 1: {  // rank 0 gets one request
          if (rank.to_coordinator.empty()) break;
          Submitted asked = std::move(rank.to_coordinator.front());
          rank.to_coordinator.pop_front();
          if (const auto* reference = std::get_if<Reference>(&asked.wish)) {
            const Response* const known = central.response_of(reference->id);
            if (known == nullptr) {
              ++again;
              rank.from_coordinator.push_back({0, {}, reference->id});
              break;
            }
            REQUIRE(request_of(*known, static_cast<int>(at)) == asked.meant);
            REQUIRE(coordinator.add_known(static_cast<int>(at), reference->id, *known, {}));
            break;
          }
          if (const CacheId number = central.number_of(asked.meant.name); number != 0) {
            coordinator.spell_out(0, number);
          }
          coordinator.add(static_cast<int>(at), asked.meant, {});
          break;
        }
        case 2:  // rank 0 decides
          central.let_go();
          for (const Coordinator::Ready& ready : coordinator.take_ready()) {
            const Response& response = ready.response();
            REQUIRE(response.status == HORA_OK);
            if (ready.number != 0) {
              ++counted;
              const bool kept = central.response_of(ready.number) != nullptr;
              REQUIRE(central.find(response) == (kept ? ready.number : 0));
            }
            const CacheId id = central.find(response);
            if (id != 0) {
              central.learn_again(id, nullptr);
            } else {
              central.learn(response, nullptr,
                            [&](CacheId forgotten) { coordinator.spell_out(0, forgotten); });
            }
            for (Rank& each : ranks) each.from_coordinator.push_back({id, response, {}});
          }
          break;
        default: {  // a rank gets one answer
          if (rank.from_coordinator.empty()) break;
          const Recorded recorded = std::move(rank.from_coordinator.front());
          rank.from_coordinator.pop_front();
          if (recorded.again) {
            for (auto& [name, id] : rank.asked_as) {
              if (id != *recorded.again || rank.pending.count(name) == 0) continue;
              id = 0;
              rank.to_coordinator.push_back({rank.pending[name], rank.pending[name]});
              break;
            }
            break;
          }
          const auto mine = rank.pending.extract(recorded.response.agreed.name);
          REQUIRE_FALSE(mine.empty());
          REQUIRE(mine.mapped() == recorded.response.agreed);
          if (recorded.id == 0) {
            rank.cache.learn(recorded.response, &mine.mapped());
          } else {
            REQUIRE(rank.cache.response_of(recorded.id) != nullptr);
            REQUIRE(*rank.cache.response_of(recorded.id) == recorded.response);
            rank.cache.learn_again(recorded.id, &mine.mapped());
          }
          REQUIRE(rank.cache.size() <= capacity);
        }
      }
    }
    CHECK(by_number > 100);
    if (capacity == 3) CHECK(again > 0);
    if (capacity == 100) CHECK(counted > 100);
  }
}
