// SPDX-License-Identifier: Apache-2.0
// Whether an order is one that the agent can rely on.  [pure]
#pragma once

#include <string>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The end of a job whose agent received that.
Failure protocol_failure(const std::string& what);

// Ranks are distinct and not negative; lease, grace and window are in range. The launcher never
// sends anything else.
Status check_order(const HostOrder& order);

}  // namespace hora::launcher
