// SPDX-License-Identifier: Apache-2.0
// Names of signals.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

// "SIGTERM"; "signal 42" when it has no name.
std::string signal_name(int signal);
// The number of "SIGTERM"; none for other texts.
std::optional<int> signal_number(std::string_view name);

}  // namespace hora::launcher
