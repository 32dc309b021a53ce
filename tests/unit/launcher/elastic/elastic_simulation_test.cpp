// SPDX-License-Identifier: Apache-2.0
// HORA_TEST_ROUNDS=100000 elastic_test "[epochs]" runs more seeds, HORA_TEST_SEED=7 one, and prints
// its events.
#include <cstdio>
#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/unit/launcher/elastic/simulation.h"

using namespace hora::launcher::elastic;

TEST_CASE("epochs of an elastic job under random faults", "[epochs]") {
  const char* seed = std::getenv("HORA_TEST_SEED");
  if (seed != nullptr) {
    const auto result = simulate(std::strtoull(seed, nullptr, 10), true);
    std::printf("%s-> %s %s\n", result.story.c_str(), result.end.c_str(), result.violation.c_str());
    CHECK(result.violation.empty());
    return;
  }
  const char* rounds = std::getenv("HORA_TEST_ROUNDS");
  const std::uint64_t count = rounds == nullptr ? 500 : std::strtoull(rounds, nullptr, 10);
  std::uint64_t succeeded = 0;
  std::uint64_t epochs = 0;
  std::uint64_t faults = 0;
  for (std::uint64_t one = 1; one <= count; ++one) {
    const auto result = simulate(one);
    INFO("seed " << one);
    REQUIRE(result.violation == "");
    succeeded += result.succeeded ? 1 : 0;
    epochs += static_cast<std::uint64_t>(result.epochs);
    faults += static_cast<std::uint64_t>(result.faults);
  }
  // The world must be neither so kind nor so hostile that nothing is seen.
  CHECK(succeeded > count / 10);
  CHECK(epochs > count * 3 / 2);
  std::printf("%llu seeds: %llu jobs succeeded, %llu epochs, %llu faults\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(succeeded),
              static_cast<unsigned long long>(epochs), static_cast<unsigned long long>(faults));
}
