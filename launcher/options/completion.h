// SPDX-License-Identifier: Apache-2.0
// Completion scripts for shells, from the option table.  [pure]
// Host names for -H come from ~/.ssh/config and known_hosts, read by the script when it is asked.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// `shell` is bash, zsh or fish. The Error is kUsage.
Result<std::string> completion_script(std::string_view shell);

}  // namespace hora::launcher
