// SPDX-License-Identifier: Apache-2.0
// Figures that were measured and kept: hora-perf's own CSV or JSON, or CSV of anybody with the same
// names over its columns.  [pure]
#pragma once

#include <string>
#include <vector>

namespace hora::perf {

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

}  // namespace hora::perf
