// SPDX-License-Identifier: Apache-2.0
// What hora-perf measured, as a table for people, CSV or JSON.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/perf/options.h"

namespace hora::perf {

struct Row {
  std::int64_t bytes = 0;
  std::int64_t count = 0;  // elements of the buffer that `bytes` is of
  int iterations = 0;
  // Microseconds of one call. The mean, as nccl-tests reports it, and quantiles; each the largest
  // of the ranks' values.
  double mean = 0;
  double median = 0;
  double best = 0;
  double p99 = 0;
  std::int64_t wrong = -1;  // elements, on all ranks together; -1: not checked
};

// GB/s as nccl-tests defines them: bytes by time, and that times what makes it comparable between
// operations and numbers of ranks: how much each link carries if all carry the same.
double algorithm_bandwidth(const Row& row);
double bus_bandwidth(const Row& row, hora_operation operation, int ranks);

struct Report {
  std::string version;
  int ranks = 1;
  int hosts = 1;
  std::vector<std::string> backends;
  Options options;
  std::vector<Row> rows;

  bool ok() const;
};

std::string format_head(const Report& report);
std::string format_row(const Report& report, const Row& row);
std::string format_json(const Report& report);

}  // namespace hora::perf
