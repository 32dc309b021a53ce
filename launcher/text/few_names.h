// SPDX-License-Identifier: Apache-2.0
// Names in a message that stays readable with ten thousand of them.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hora::launcher {

inline constexpr std::size_t kFewNames = 8;

// "a, b, c", or, of more than kFewNames, "a, b, c, d, e, f, g, h and 14 more".
std::string few_names(const std::vector<std::string>& names);

}  // namespace hora::launcher
