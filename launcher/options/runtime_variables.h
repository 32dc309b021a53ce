// SPDX-License-Identifier: Apache-2.0
// The variables by which users set Hora's runtime. Nothing reads a misspelt one, and the runtime
// cannot tell it from a variable of the user's own.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// docs/reference/runtime.md and environment.md say what they mean.
std::span<const std::string_view> runtime_variables();

// A line for each of `names` that is close to one of them and none of them.
std::vector<std::string> misspelt_runtime_variables(const std::vector<std::string>& names);

}  // namespace hora::launcher
