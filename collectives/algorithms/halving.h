// SPDX-License-Identifier: Apache-2.0
// Recursive halving, and doubling back: with every exchange a rank is left with half as many
// elements to reduce, and then the shares go back the same way. As many bytes as in a ring, in
// 2 log2(n) messages, among a power of two of ranks.
//
// R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in
// MPICH (2005), section 4.5. The nearest ranks exchange first here, so that every element is
// reduced in the order of doubling.h, to the same bits.
#pragma once

#include "collectives/algorithms/messages.h"
#include "collectives/algorithms/reduction.h"

namespace hora::collectives {

// In place.
bool halving_allreduce(Messages& messages, char* data, std::int64_t count,
                       const Reduction& reduction, ErrorText& error);

}  // namespace hora::collectives
