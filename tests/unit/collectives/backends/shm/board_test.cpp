// SPDX-License-Identifier: Apache-2.0
// Ranks that have met on one core while they wait for each other do not stay there.
#include "collectives/backends/shm/board.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

constexpr int kCounter = 0;

cpu_set_t only(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return set;
}

}  // namespace

TEST_CASE("board: a rank that is woken on the core of its waker leaves it") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  if (CPU_COUNT(&before) < 2) return;  // nowhere to go
  const cpu_set_t here = only(sched_getcpu());
  const pid_t sleeper = gettid();
  constexpr int kRounds = 200;
  int apart = 0;
  for (int round = 0; round < kRounds; ++round) {
    BoardLine lines[2] = {};
    Board own;
    own.attach(lines, 0, 2, true);
    REQUIRE(sched_setaffinity(0, sizeof here, &here) == 0);
    std::thread other([&] {
      Board its;
      its.attach(lines, 1, 2, true);
      sched_setaffinity(0, sizeof here, &here);
      const auto deadline = hora::Clock::now() + std::chrono::seconds(20);
      while (lines[0].asleep.load() == 0 && hora::Clock::now() < deadline) sched_yield();
      sched_setaffinity(sleeper, sizeof before, &before);
      its.advance(kCounter, 1);
    });
    const bool came = own.wait_one(kCounter, 1, 1);
    other.join();
    REQUIRE(came);
    const bool known = lines[0].cpu != 0 && lines[1].cpu != 0;
    if (known && lines[0].cpu != lines[1].cpu) ++apart;
    cpu_set_t after;
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    REQUIRE(CPU_EQUAL(&before, &after));
  }
  // The kernel, too, moves this thread at times.
  REQUIRE(apart > kRounds / 2);
}

TEST_CASE("board: with fewer cores than ranks, a rank ignores the CPUs of the others") {
  BoardLine lines[2] = {};
  Board own;
  own.attach(lines, 0, 2, false);
  std::thread other([&] {
    Board its;
    its.attach(lines, 1, 2, false);
    its.advance(kCounter, 1);
  });
  const bool came = own.wait_one(kCounter, 1, 1);
  other.join();
  REQUIRE(came);
  REQUIRE(lines[0].cpu == 0);
  REQUIRE(lines[1].cpu == 0);
}
