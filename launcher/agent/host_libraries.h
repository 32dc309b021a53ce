// SPDX-License-Identifier: Apache-2.0
// What the launcher asks of the shared libraries of this host.
#pragma once

#include <vector>

#include "launcher/agent/agent_options.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// One for each that `--find` and the conditions of `--parts` name; a few milliseconds if there are
// any.
std::vector<HostLibrary> find_host_libraries(const AgentOptions& options);

}  // namespace hora::launcher
