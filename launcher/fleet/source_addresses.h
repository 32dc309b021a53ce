// SPDX-License-Identifier: Apache-2.0
// Where hosts try to reach one that serves the agent or parts of the runtime, the most promising
// address first. The network of the job is not chosen yet.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/network/network_choice.h"

namespace hora::launcher {

// For hosts of which nothing is known yet: no address that is the source's alone.
std::vector<std::string> addresses_for_all(const HostNetwork& source,
                                           const std::vector<std::string>& interfaces);

// For one host that has told its own addresses.
std::vector<std::string> addresses_for(const HostNetwork& host, const HostNetwork& source,
                                       const std::vector<std::string>& interfaces);

}  // namespace hora::launcher
