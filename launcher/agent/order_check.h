// SPDX-License-Identifier: Apache-2.0
// Whether an order is one that the agent can rely on.  [pure]
#pragma once

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Ranks are distinct and not negative; lease, grace and window are in range. The launcher never
// sends anything else.
Status check_order(const HostOrder& order);

}  // namespace hora::launcher
