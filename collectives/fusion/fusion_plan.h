// Which responses run as one step.  [pure]
// The same responses give the same plan on every rank. A rank that is not told the responses of
// some sets plans those of all other sets as if it were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

// How many bytes may share a step of the process set; 0: never more than one response.
using FusionThreshold = std::function<std::int64_t(std::int32_t process_set)>;

// Indices into the list of responses, in the order of execution; each index once. Reductions that
// agree in all but name and shape share a step as long as their bytes fit the threshold. A response
// may move forward past others to join an earlier step.
std::vector<std::vector<std::size_t>> plan_fusion(std::span<const Response* const> responses,
                                                  const FusionThreshold& threshold_of);

}  // namespace hora::collectives
