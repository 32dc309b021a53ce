// SPDX-License-Identifier: Apache-2.0
// From the environment of a worker to what Communicator::join() needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/runtime/callers_exchange.h"
#include "collectives/runtime/communicator.h"

namespace hora::collectives {

// `generation`: how often this process has joined before. Rank 0 of each incarnation of the world
// publishes its address under a key of its own, so that nobody meets yesterday's coordinator.
// `callers`: a world of the program's choice instead of the environment's.
Result<Communicator::Start> start_from_environment(
    std::vector<std::vector<std::int32_t>> process_sets, int generation,
    const std::optional<CallersWorld>& callers = std::nullopt);

}  // namespace hora::collectives
