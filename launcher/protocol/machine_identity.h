// SPDX-License-Identifier: Apache-2.0
// Whether two agents are on one machine.  [pure]
#pragma once

#include "launcher/protocol/messages.h"

namespace hora::launcher {

// On one machine, and in one container of it: ranks would see the same processes, addresses and
// GPUs. Nothing is claimed where a host does not say what it is.
bool are_one_machine(const Hello& a, const Hello& b);

}  // namespace hora::launcher
