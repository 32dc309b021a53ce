// SPDX-License-Identifier: Apache-2.0
// What hora-smoke found, as a table for people and as JSON for programs.  [pure]
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/smoke/checks.h"
#include "apps/smoke/measure.h"

namespace hora::smoke {

struct Report {
  std::string version;
  int ranks = 1;
  int hosts = 1;
  std::vector<std::string> backends;
  std::vector<CheckResult> checks;                          // failures: of all ranks together
  std::vector<std::pair<int, std::string>> first_failures;  // rank, text
  std::vector<Timing> timings;
  double seconds = 0;

  bool ok() const;
};

std::string format_table(const Report& report);
std::string format_json(const Report& report);

}  // namespace hora::smoke
