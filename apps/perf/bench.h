// SPDX-License-Identifier: Apache-2.0
// Runs one collective again and again, times it and checks the result.
#pragma once

#include <string>

#include "apps/perf/results.h"

namespace hora::perf {

// Thrown when the library reports an error: the job is over.
struct Failure {
  std::string text;
};

// Collective: every rank calls it with the same arguments; all get the same row.
Row measure(const Options& options, std::int64_t bytes);
// The sum of the ranks' values.
double sum_over_ranks(double mine);

}  // namespace hora::perf
