// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/tuner.h"

#include "tests/support/catch.h"
#include "tests/unit/collectives/runtime/engine_parts.h"

using namespace hora;
using namespace hora::collectives;
using test::allreduce;

namespace {

World tuned_world(int rank) {
  World world = test::world_of(rank, 2);
  world.settings.autotune = true;
  world.rank_infos.front().parameters.cycle_time_us = 123;
  return world;
}

Response response_of(const Request& agreed) {
  Response response;
  response.agreed = agreed;
  return response;
}

}  // namespace

TEST_CASE("tuner: all begin with what rank 0 has, and rank 0 alone searches") {
  const auto set = test::set_of(0, {0, 1}, 0);
  for (int rank : {0, 1}) {
    Tuner tuner;
    tuner.start(tuned_world(rank), *set);
    CHECK(tuner.parameters().cycle_time_us == 123);
    CHECK(tuner.searching() == (rank == 0));
  }
  World untuned = tuned_world(0);
  untuned.settings.autotune = false;
  Tuner tuner;
  tuner.start(untuned, *set);
  CHECK_FALSE(tuner.searching());
  CHECK(tuner.take_change() == nullptr);
}

TEST_CASE("tuner: there is no search where every parameter is given") {
  World world = tuned_world(0);
  world.settings.tunable = {false, false, false, false};
  Tuner tuner;
  tuner.start(world, *test::set_of(0, {0, 1}, 0));
  CHECK_FALSE(tuner.searching());
}

TEST_CASE("tuner: reductions of the world are measured, but not by Adasum") {
  const auto world = test::set_of(0, {0, 1}, 0);
  const auto other = test::set_of(1, {0, 1}, 0);
  const Response x = response_of(allreduce("x"));
  REQUIRE(Tuner::reductions_of(*world, {&x}).size() == 1);
  CHECK(Tuner::reductions_of(*world, {&x}).front().bytes == 4);
  CHECK(Tuner::reductions_of(*other, {&x}).empty());
  Response adasum = x;
  adasum.agreed.reduce_op = HORA_ADASUM;
  CHECK(Tuner::reductions_of(*world, {&adasum}).empty());
}

TEST_CASE("tuner: what rank 0 changes to, every rank does") {
  const auto set = test::set_of(0, {0, 1}, 0);
  Tuner rank0;
  rank0.start(tuned_world(0), *set);
  Tuner rank1;
  rank1.start(tuned_world(1), *set);
  auto now = Clock::now();
  std::unique_ptr<Response> change;
  for (int step = 0; step < 100000 && change == nullptr; ++step) {
    const Tuner::Reduced reductions[] = {{"x", 1 << 20}};
    rank0.ran(reductions, now += std::chrono::milliseconds(10));
    change = rank0.take_change();
  }
  REQUIRE(change != nullptr);
  CHECK(change->agreed.action == Action::kTune);
  REQUIRE(rank0.change(*change, now));
  REQUIRE(rank1.change(*change, now));
  CHECK(to_numbers(rank0.parameters()) == to_numbers(rank1.parameters()));
  CHECK(to_numbers(rank0.parameters()) != to_numbers(tuned_world(0).agreed().parameters));
}

TEST_CASE("tuner: parameters that make no sense change nothing") {
  Tuner tuner;
  tuner.start(tuned_world(1), *test::set_of(0, {0, 1}, 1));
  Response malformed;
  malformed.numbers = {1};
  CHECK_FALSE(tuner.change(malformed, Clock::now()));
  CHECK(tuner.parameters().cycle_time_us == 123);
}
