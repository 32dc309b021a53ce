// SPDX-License-Identifier: Apache-2.0
// Lines of a file that may go on in the next one.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct LogicalLine {
  std::size_t number = 0;  // of its first line in the file, from 1
  std::string text;
};

// '#' begins a line that is a comment, and '\' at its end goes on in the next one. Empty lines and
// comments are left out.
std::vector<LogicalLine> logical_lines(std::string_view text);

}  // namespace hora::launcher
