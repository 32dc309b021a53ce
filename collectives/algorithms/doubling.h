// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: with every exchange of the whole data a rank covers twice as many ranks. Few
// messages, but each byte moves once for every doubling.
#pragma once

#include "collectives/algorithms/messages.h"
#include "collectives/algorithms/reduction.h"

namespace hora::collectives {

// In place.
bool doubling_allreduce(Messages& messages, char* data, std::int64_t count,
                        const Reduction& reduction, ErrorText& error);

}  // namespace hora::collectives
