// SPDX-License-Identifier: Apache-2.0
// When a rank moves to another core, and that it is bound to nothing afterwards.
#include "collectives/memory/core_spread.h"

#include <sched.h>

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

using namespace hora::collectives;
using hora::Clock;
using std::chrono::milliseconds;

namespace {

constexpr std::uint32_t kHelped = 1000;

// How long after a move at `now` the next one is allowed, if `successes` waits did without a sleep.
milliseconds pause_after_move(MoveTiming& timing, Clock::time_point& now, std::uint32_t successes) {
  REQUIRE(timing.is_due(now, successes));
  milliseconds pause{0};
  while (!timing.is_due(now + pause, successes)) pause += milliseconds(1);
  now += pause;
  return pause;
}

}  // namespace

TEST_CASE("core spread: moves that do not help become rare, up to a limit") {
  MoveTiming timing;
  Clock::time_point now{std::chrono::hours(1)};
  milliseconds last{0};
  for (int move = 0; move < 20; ++move) {
    const milliseconds pause = pause_after_move(timing, now, 0);
    REQUIRE(pause >= last);
    last = pause;
    now += milliseconds(1000);
  }
  REQUIRE(last > milliseconds(32));
  REQUIRE(last < milliseconds(1000));
}

TEST_CASE("core spread: a move that helped may be repeated soon") {
  MoveTiming timing;
  Clock::time_point now{std::chrono::hours(1)};
  for (int move = 0; move < 20; ++move) pause_after_move(timing, now, 0), now += milliseconds(1000);
  REQUIRE(timing.is_due(now, kHelped));
  REQUIRE_FALSE(timing.is_due(now, 2 * kHelped));
  REQUIRE(timing.is_due(now + milliseconds(2), 2 * kHelped));
}

TEST_CASE("core spread: a rank leaves the core of another one and may use it again") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  if (CPU_COUNT(&before) < 2) return;  // nowhere to go
  CpuOfRank cpus[2] = {};
  const auto cpu_of = [&](int rank) -> CpuOfRank& { return cpus[rank]; };
  constexpr int kRounds = 200;
  int moved = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int first = sched_getcpu();
    cpus[1] = first + 1;
    CoreSpread spread;
    spread.enable(true);
    spread.woken(cpu_of, 2, 0, 0);
    if (cpus[0] != first + 1) ++moved;
    cpu_set_t after;
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    REQUIRE(CPU_EQUAL(&before, &after));
  }
  // The kernel, too, moves this thread at times.
  REQUIRE(moved > kRounds / 2);
}

TEST_CASE("core spread: with fewer cores than ranks, a sleep does not move a rank") {
  CpuOfRank cpus[2] = {};
  const auto cpu_of = [&](int rank) -> CpuOfRank& { return cpus[rank]; };
  CoreSpread spread;
  spread.enable(false);
  spread.woken(cpu_of, 2, 0, 0);
  REQUIRE(cpus[0] == 0);
}

TEST_CASE("core spread: the CPUs with at least two ranks less") {
  RanksOnCpus ranks;
  for (const int cpu : {3, 3, 3, 3, 5, 5, 6, 6, 6, 7, -1, CPU_SETSIZE, 1 << 30}) ranks.add(cpu);
  const cpu_set_t found = ranks.with_two_less_than(3);
  REQUIRE(CPU_COUNT(&found) == 2);
  REQUIRE(CPU_ISSET(5, &found));
  REQUIRE(CPU_ISSET(7, &found));
  for (const int cpu : {5, 7, 0, CPU_SETSIZE, 1 << 30}) {
    const cpu_set_t none = ranks.with_two_less_than(cpu);
    REQUIRE(CPU_COUNT(&none) == 0);
  }
}

TEST_CASE("core spread: awaited ranks are elsewhere if that is known of all") {
  CpuOfRank cpus[4] = {3, 3, 5, 6};
  const auto cpu_of = [&](int rank) -> CpuOfRank& { return cpus[rank]; };
  const auto elsewhere = [&](std::vector<int> awaited) {
    return CoreSpread::are_elsewhere(cpu_of, 4, 0, [&](int rank) {
      return std::find(awaited.begin(), awaited.end(), rank) != awaited.end();
    });
  };
  CHECK(elsewhere({2, 3}));
  CHECK(elsewhere({}));
  CHECK_FALSE(elsewhere({1, 2, 3}));
  cpus[2] = 0;
  CHECK_FALSE(elsewhere({2, 3}));
  CHECK(elsewhere({3}));
  cpus[0] = 0;
  CHECK_FALSE(elsewhere({3}));
}

TEST_CASE("core spread: other ranks do not move to a core that was lost to other programs") {
  CpuOfRank own = 0;
  const auto cpu_of = [&](int) -> CpuOfRank& { return own; };
  constexpr int kLook = 64;
  CoreSpread spread;
  spread.enable(false);
  const auto wait = [&](int count, std::uint32_t losses) {
    for (int i = 0; i < count; ++i) spread.waited(cpu_of, 1, 0, 0, losses);
  };
  wait(kLook - 1, 0);
  REQUIRE(own == 0);
  wait(1, 0);
  REQUIRE(own != 0);
  wait(kLook, 1);
  REQUIRE(own == 0);
  wait(kLook, 1);
  REQUIRE(own != 0);
  // With a core for each rank, none looks while it does not sleep.
  own = 0;
  spread.enable(true);
  wait(kLook, 1);
  REQUIRE(own == 0);
}
