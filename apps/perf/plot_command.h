// SPDX-License-Identifier: Apache-2.0
// hora-perf plot: reads files of figures, writes a picture. Needs no job.
#pragma once

#include <string>
#include <vector>

namespace hora::perf {

// The arguments after "plot"; returns the exit code.
int run_plot(const std::vector<std::string>& arguments);

}  // namespace hora::perf
