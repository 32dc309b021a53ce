// SPDX-License-Identifier: Apache-2.0
// Barrier, broadcast and all-to-all.
#pragma once

#include "collectives/algorithms/messages.h"

namespace hora::collectives {

// No rank leaves before all have come: by dissemination, after whose round k a rank has received
// messages, directly or not, from 2^(k+1) ranks.

bool dissemination_barrier(Messages& messages, ErrorText& error);

// From one rank to all: down a binomial tree, or, if large, in parts to the ranks, which pass them
// round the ring.

bool tree_broadcast(Messages& messages, char* data, std::int64_t bytes, int root, ErrorText& error);
// The root sends each byte once.
bool scattered_broadcast(Messages& messages, char* data, std::int64_t bytes, int root,
                         std::int64_t segment_bytes, ErrorText& error);

// Every rank has something else for every other one.

// By set index, one after the other in both stretches of memory.
bool all_to_all(Messages& messages, const char* input, const std::int64_t* send_bytes, char* output,
                const std::int64_t* receive_bytes, ErrorText& error);

}  // namespace hora::collectives
