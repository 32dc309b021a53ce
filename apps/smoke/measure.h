// SPDX-License-Identifier: Apache-2.0
// How fast the collectives are on these hosts: a first impression, not a benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hora::smoke {

struct Timing {
  std::string operation;
  std::int64_t bytes = 0;   // of the tensor: of one rank's input; for allgather of the result
  double microseconds = 0;  // median of the repetitions, the slowest rank's
};

// Collective: every rank calls it. About `budget_seconds` altogether.
std::vector<Timing> measure_all(double budget_seconds);

}  // namespace hora::smoke
