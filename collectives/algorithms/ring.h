// SPDX-License-Identifier: Apache-2.0
// Every rank passes a part of the data to its right neighbour, which adds its own and passes it on;
// after size - 1 hops part i is complete on rank i, and after size - 1 more all ranks have it. Each
// byte moves twice, however many ranks there are.
//
// Parts travel in segments of `segment_bytes`, so that moving one overlaps with reducing the one
// before; a segment moves on as soon as it is there.
#pragma once

#include "collectives/algorithms/messages.h"
#include "collectives/algorithms/parts.h"
#include "collectives/algorithms/reduction.h"

namespace hora::collectives {

// All of these work in place. `offsets` of whole elements.
bool ring_allreduce(Messages& messages, char* data, const Offsets& offsets,
                    const Reduction& reduction, std::int64_t segment_bytes, ErrorText& error);
// On return this rank's part is reduced, and the rest is undefined.
bool ring_reduce_scatter(Messages& messages, char* data, const Offsets& offsets,
                         const Reduction& reduction, std::int64_t segment_bytes, ErrorText& error);
// This rank's part is in its place already.
bool ring_allgather(Messages& messages, char* data, const Offsets& offsets,
                    std::int64_t segment_bytes, ErrorText& error);

}  // namespace hora::collectives
