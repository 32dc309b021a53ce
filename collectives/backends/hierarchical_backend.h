// Collectives of a set that spans hosts, composed of two other ways: one within the host, one
// between hosts. Each byte leaves a host once, and all drivers of a host send at the same time.
//
//   allreduce   reduce-scatter in the host, allreduce of each part between hosts, allgather in
//               the host; where it is small: allreduce in the host, between hosts, broadcast
//   allgather   allgather in the host, of parts of that between hosts, and of those in the host
#pragma once

#include <memory>

#include "collectives/algorithms/point_to_point.h"
#include "collectives/backends/backend.h"
#include "collectives/backends/hierarchy.h"

namespace hora::collectives {

// Messages of this kind of a set are told from those of its other backends.
inline constexpr std::uint32_t kHierarchyTag = 1u << 22;

// `local`: of the members on this host, or null when this rank is alone there; it belongs to the
// result. `links` outlives it. `set`: its id. destroy() deletes it.
Backend* make_hierarchical_backend(Hierarchy plan, Backend* local, PeerLinks& links,
                                   std::int32_t set);

}  // namespace hora::collectives
