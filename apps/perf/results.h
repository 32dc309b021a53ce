// SPDX-License-Identifier: Apache-2.0
// The measured rows, and the table that shows them.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/perf/options.h"

namespace hora::perf {

// Figures that were measured and kept: hora-perf's own CSV or JSON, or any CSV with the same
// names over its columns.

struct Figure {
  double bytes = 0;
  double latency_us = 0;      // of one call, the median where it is known
  double bandwidth_gbs = -1;  // of the bus; below 0: not known
};
struct Series {
  std::string label;
  std::vector<Figure> figures;  // by bytes
};

// What `text` holds, under that label. When it is neither, `problem` says what was expected.
Series parse_results(const std::string& text, const std::string& label, std::string& problem);

// What hora-perf measured, as a table for people, CSV or JSON.

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
