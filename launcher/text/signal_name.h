// SPDX-License-Identifier: Apache-2.0
// Names of signals.  [pure]
#pragma once

#include <string>

namespace hora::launcher {

// "SIGTERM"; "signal 42" when it has no name.
std::string signal_name(int signal);

}  // namespace hora::launcher
