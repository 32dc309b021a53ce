// SPDX-License-Identifier: Apache-2.0
// How the ranks of a world find each other in the store and open their control connections.
#pragma once

#include <string>

#include "collectives/control/tcp_control.h"
#include "collectives/runtime/communicator.h"

namespace hora::collectives {

// Blocks until all ranks have met. When some do not come within settings.start_timeout, the error
// (kTimedOut) names them, the same on all that came: rank 0 decides, and the others wait a little
// longer. `rank_info`: what the others are to know of this rank.
Result<ControlWorld> meet(const Communicator::Start& start, std::string rank_info);

}  // namespace hora::collectives
