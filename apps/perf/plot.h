// SPDX-License-Identifier: Apache-2.0
// Series of figures as a picture: latency and bus bandwidth by size, both axes logarithmic.  [pure]
#pragma once

#include <string>
#include <vector>

#include "apps/perf/results.h"

namespace hora::perf {

// SVG. Figures without a positive size and time have no place on such axes and are left out.
std::string draw_plot(const std::vector<Series>& series, const std::string& title);
// The picture and all figures as a page.
std::string draw_page(const std::vector<Series>& series, const std::string& title);

}  // namespace hora::perf
