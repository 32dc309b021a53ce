// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/job/job_simulation.h"

#include <cstdlib>
#include <map>

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

}  // namespace

// HORA_SEEDS lives from HORA_SEED on. HORA_SEED=it HORA_SEEDS=1 prints a broken one in full.
TEST_CASE("lives of jobs, from seeds") {
  const std::uint64_t first = number("HORA_SEED", 1);
  const std::uint64_t count = number("HORA_SEEDS", 5'000);
  std::uint64_t events = 0;
  int broken = 0;
  std::map<std::string, std::pair<int, int>> faults;  // how often, and how often the job failed
  for (std::uint64_t seed = first; seed < first + count && broken < 5; ++seed) {
    auto verdict = simulation::live(seed, count == 1);
    events += static_cast<std::uint64_t>(verdict.events);
    auto& [times, failed] = faults[verdict.fault];
    ++times;
    failed += verdict.failed;
    if (count == 1) WARN(verdict.history);
    if (verdict.broken.empty()) continue;
    ++broken;
    UNSCOPED_INFO("seed " << seed << ": " << verdict.broken);
  }
  CHECK(broken == 0);
  if (count < 1'000) return;
  CHECK(faults.size() == 14);
  for (const auto& [fault, figures] : faults) {
    INFO(fault << ": " << figures.second << " of " << figures.first << " jobs failed");
    // A fault may come when all is over, but not every time.
    CHECK(figures.second * 3 >= (fault == "nothing" ? 0 : figures.first));
  }
  if (count > 5'000) WARN(count << " lives, " << events << " events");
}

TEST_CASE("the same seed is the same life") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CHECK(simulation::live(seed, true).history == simulation::live(seed, true).history);
  }
}
