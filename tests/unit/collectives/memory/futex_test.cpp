// SPDX-License-Identifier: Apache-2.0
// How long a rank looks out for the others before it sleeps.
#include "collectives/memory/futex.h"

#include <utility>

#include "tests/support/catch.h"

using namespace hora::collectives;
using hora::Clock;

namespace {

// Time passes on this core only while another program has it.
struct TestCore {
  static Clock::time_point now() { return time; }
  static void give_way() {
    ++turns;
    time += a_turn;
  }
  static inline Clock::time_point time{std::chrono::hours(1)};
  static inline std::chrono::microseconds a_turn{0};
  static inline int turns = 0;
};

// How often it looks when nothing comes.
template <typename AnySpinner>
int failed_looks(AnySpinner& spinner) {
  int looks = 0;
  REQUIRE_FALSE(spinner.until([&] {
    ++looks;
    return false;
  }));
  return looks;
}

template <typename AnySpinner>
bool comes_at_look(AnySpinner& spinner, int number) {
  int looks = 0;
  return spinner.until([&] { return ++looks == number; });
}

template <typename AnySpinner>
void fail_until_it_looks_once(AnySpinner& spinner) {
  while (failed_looks(spinner) > 1) {
  }
}

}  // namespace

TEST_CASE("spinner: what has come is seen at once") {
  for (const bool cores : {false, true}) {
    Spinner spinner;
    spinner.enable(cores);
    REQUIRE(comes_at_look(spinner, 1));
  }
}

TEST_CASE("spinner: gives its core away for as long as it would poll, by its own time") {
  BasicSpinner<TestCore> spinner;
  spinner.enable(false);
  // No other program wants the core: 50 turns; others do: 25, however long those take.
  for (const auto& [turn, looks] : {std::pair{1, 51}, {2, 26}, {30, 26}}) {
    TestCore::a_turn = std::chrono::microseconds(turn);
    TestCore::time += std::chrono::seconds(1);
    REQUIRE(comes_at_look(spinner, looks));
    REQUIRE(failed_looks(spinner) == looks);
  }
}

TEST_CASE("spinner: does not yield at once to what is on other cores") {
  BasicSpinner<TestCore> spinner;
  spinner.enable(false);
  TestCore::a_turn = std::chrono::microseconds(2);
  TestCore::time += std::chrono::seconds(1);
  const auto turns_until = [&](int come, int leave) {
    const int before = TestCore::turns;
    int looks = 0;
    REQUIRE(spinner.until([&] { return ++looks == come; }, [&] { return looks < leave; }));
    return TestCore::turns - before;
  };
  CHECK(turns_until(60, 100) == 0);
  // Now and then all the same: what is known may be old.
  CHECK(turns_until(100, 200) == 1);
  CHECK(turns_until(2, 1) == 1);
  // What is awaited now is on this core.
  CHECK(turns_until(20, 19) == 1);
}

TEST_CASE("spinner: keeps its core while yielding has failed too often") {
  BasicSpinner<TestCore> spinner;
  spinner.enable(false);
  TestCore::a_turn = std::chrono::microseconds(2);
  fail_until_it_looks_once(spinner);
  REQUIRE_FALSE(comes_at_look(spinner, 2));
  TestCore::time += std::chrono::milliseconds(1);
  // One turn of another program does not cause a sleep; two at once do.
  TestCore::time += std::chrono::seconds(1);
  TestCore::a_turn = std::chrono::milliseconds(4);
  const std::uint32_t losses = spinner.losses();
  REQUIRE(comes_at_look(spinner, 2));
  REQUIRE(comes_at_look(spinner, 2));
  REQUIRE_FALSE(comes_at_look(spinner, 2));
  REQUIRE(spinner.losses() == losses + 3);
  TestCore::a_turn = std::chrono::microseconds(2);
  TestCore::time += std::chrono::milliseconds(65);
  REQUIRE(comes_at_look(spinner, 26));
  // What helps costs nothing.
  for (int i = 0; i < 1000; ++i) REQUIRE(comes_at_look(spinner, 26));
  REQUIRE(comes_at_look(spinner, 1));
  REQUIRE(spinner.losses() == losses + 3);
}

TEST_CASE("spinner: gives its core to other programs for a small part of the time") {
  using std::chrono::microseconds;
  BasicSpinner<TestCore> spinner;
  spinner.enable(false);
  TestCore::a_turn = microseconds(3'000);
  const auto begin = TestCore::time;
  const auto given = [before = TestCore::turns] { return TestCore::turns - before; };
  int waits = 0;
  for (; TestCore::time < begin + std::chrono::seconds(3); ++waits) {
    // Whether or not the awaited rank has come meanwhile.
    if (!comes_at_look(spinner, 2)) TestCore::time += microseconds(20);  // it sleeps
  }
  CHECK(given() * TestCore::a_turn < (TestCore::time - begin) / 15);
  CHECK(given() * TestCore::a_turn > (TestCore::time - begin) / 20);
  CHECK(waits > 100'000);
  // The other program has ended.
  TestCore::time += std::chrono::seconds(1);
  TestCore::a_turn = microseconds(2);
  for (int i = 0; i < 100; ++i) REQUIRE(comes_at_look(spinner, 9));
}

TEST_CASE("spinner: a rank that is late each time costs long polls only now and then") {
  PollBudget budget;
  const Clock::time_point begin{std::chrono::hours(1)};
  const auto end = begin + std::chrono::seconds(1);
  Clock::duration spent{0};
  int at_once = 0;
  for (auto now = begin; now < end; now += std::chrono::microseconds(11)) {
    if (!budget.covers_a_long_poll(now)) continue;
    budget.spend_a_long_poll(now);
    if (now < begin + std::chrono::microseconds(200)) ++at_once;
    spent += PollBudget::kLongPoll;
    now += PollBudget::kLongPoll;
  }
  REQUIRE(at_once >= 3);
  REQUIRE(spent < (end - begin) / 15);
  REQUIRE(spent > (end - begin) / 20);
  // What has not been used is not saved up for more than a moment.
  REQUIRE(budget.covers_a_long_poll(end + std::chrono::seconds(10)));
}

TEST_CASE("spinner: polls shortly when the budget is spent, and for long again later") {
  Spinner spinner;
  spinner.enable(true);
  constexpr int kShort = 17;
  while (failed_looks(spinner) > kShort) {
  }
  while (failed_looks(spinner) == kShort) {
  }
}

// Ranks that wake each other take longer than a short look lasts.
TEST_CASE("spinner: returns to long looks after short ones") {
  Spinner spinner;
  spinner.enable(true);
  for (int i = 0; i < 10; ++i) failed_looks(spinner);
  const std::uint32_t before = spinner.successes();
  while (spinner.successes() == before) {
    const auto there = Clock::now() + std::chrono::microseconds(13);
    // Where this thread loses its core here, it is there at once: that is not a success of a poll.
    spinner.until([&] { return Clock::now() >= there; });
  }
  REQUIRE(spinner.successes() == before + 1);
}
