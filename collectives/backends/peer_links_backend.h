// SPDX-License-Identifier: Apache-2.0
// Any PeerLinks as a Backend of one process set: packs, scales, and runs the algorithms of
// collectives/algorithms on host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/algorithms/point_to_point.h"
#include "collectives/backend.h"

namespace hora::collectives {

// The world owns `links`, which outlives the backend. `ranks` are global, by set index. destroy()
// deletes the backend.
Backend* make_peer_links_backend(PeerLinks& links, std::vector<std::int32_t> ranks, int index,
                                 std::int32_t set, PointToPoint::Options options);

}  // namespace hora::collectives
