// SPDX-License-Identifier: Apache-2.0
// Which responses run together in one step.  [pure]
// The same responses give the same plan on every rank. A rank that does not get the responses of
// some sets plans those of all other sets as if it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

// How many bytes may share one step of the process set; 0: one response per step.
using FusionThreshold = std::function<std::int64_t(std::int32_t process_set)>;

// Whether an operation may share a step with one that is not of its group.
enum class Groups { kMixed, kApart };

// Returns indices into the list of responses, in the order of execution; each index once.
// Reductions that agree in everything but name and shape share a step as long as their bytes fit
// the threshold. A response may move forward past others to join an earlier step.
std::vector<std::vector<std::size_t>> plan_fusion(std::span<const Response* const> responses,
                                                  const FusionThreshold& threshold_of,
                                                  Groups groups = Groups::kMixed);

}  // namespace hora::collectives
