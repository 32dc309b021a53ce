// SPDX-License-Identifier: Apache-2.0
// Collectives of a set that spans hosts, composed of two backends: one within the host and one
// between hosts. Each byte leaves a host once, and all drivers of a host send at the same time.
//
//   allreduce   reduce-scatter in the host, allreduce of each part between hosts, allgather in
//               the host; small ones: allreduce in the host, between hosts, broadcast
//   allgather   allgather in the host, of parts of that between hosts, and of those in the host
#pragma once

#include <memory>

#include "collectives/algorithms/point_to_point.h"
#include "collectives/backend.h"
#include "collectives/backends/hierarchy.h"

namespace hora::collectives {

// Keeps the messages of this backend apart from those of the set's other backends.
inline constexpr std::uint32_t kHierarchyTag = 1u << 22;

// `local` serves the members on this host, and is null when this rank is alone there; the result
// owns it. `links` must outlive the result. `set` is the set's id. destroy() deletes the result.
Backend* make_hierarchical_backend(Hierarchy plan, Backend* local, PeerLinks& links,
                                   std::int32_t set, PointToPoint::Options options);

}  // namespace hora::collectives
