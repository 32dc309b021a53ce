// Which verdicts run as one step.  [pure]
// The same verdicts give the same plan on every rank. A rank that is not told the verdicts of some
// sets plans those of all other sets as if it were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

// How many bytes may share a step of the process set; 0: never more than one verdict.
using FusionThreshold = std::function<std::int64_t(std::int32_t process_set)>;

// Indices into the list of verdicts, in the order of execution; each index once. Reductions that
// agree in all but name and shape share a step as long as their bytes fit the threshold. A verdict
// may move forward past others to join an earlier step.
std::vector<std::vector<std::size_t>> plan_fusion(std::span<const Verdict* const> verdicts,
                                                  const FusionThreshold& threshold_of);

}  // namespace hora::collectives
