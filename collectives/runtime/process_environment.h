// SPDX-License-Identifier: Apache-2.0
// The environment of this process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora::collectives {

// A variable's value; nothing when it is not set. Fits Variables (settings.h).
std::optional<std::string> process_variable(std::string_view name);

}  // namespace hora::collectives
