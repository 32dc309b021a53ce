// Which verdicts run as one step.  [pure]
// The same verdicts give the same plan on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

// Indices into the list of verdicts, in the order of execution; each index once. Reductions that
// agree in all but name and shape share a step as long as their bytes fit the threshold (0: never).
// A verdict may move forward past others to join an earlier step.
std::vector<std::vector<std::size_t>> plan_fusion(const std::vector<Verdict>& verdicts,
                                                  std::int64_t threshold_bytes);

}  // namespace hora::collectives
