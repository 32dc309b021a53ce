// SPDX-License-Identifier: Apache-2.0
// Host ranges: "n[01-03,7]" names n01, n02, n03 and n7.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hora::launcher {

struct RangeProblem {
  std::size_t offset = 0;  // into the pattern
  std::string message;
};

// Expands every "[...]" of `pattern`; several multiply, the last one counting fastest. A number
// with leading zeros pads those of its range to its own width. A pattern without brackets is one
// name. At most `limit` names, so that a slip such as [1-999999999] costs a message and no memory.
std::variant<std::vector<std::string>, RangeProblem> expand_host_range(std::string_view pattern,
                                                                       std::size_t limit);

}  // namespace hora::launcher
