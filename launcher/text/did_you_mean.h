// SPDX-License-Identifier: Apache-2.0
// Suggests known names for a mistyped word.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// The words of `known` that are close to `word`, the closest first; for "did you mean".
std::vector<std::string> did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace hora::launcher
