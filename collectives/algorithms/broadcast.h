// SPDX-License-Identifier: Apache-2.0
// From one rank to all: down a binomial tree, or, what is large, in parts to the ranks, which pass
// them round the ring.
#pragma once

#include "collectives/algorithms/messages.h"

namespace hora::collectives {

bool tree_broadcast(Messages& messages, char* data, std::int64_t bytes, int root, ErrorText& error);
// The root sends each byte once.
bool scattered_broadcast(Messages& messages, char* data, std::int64_t bytes, int root,
                         std::int64_t segment_bytes, ErrorText& error);

}  // namespace hora::collectives
