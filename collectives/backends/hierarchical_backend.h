// SPDX-License-Identifier: Apache-2.0
// Collectives within each host, then between the hosts' leaders.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/algorithms/point_to_point.h"
#include "collectives/backend.h"

namespace hora::collectives {

// How the ranks of a set that spans hosts share the work of a hierarchical collective.
// On every host the same number of ranks, the drivers, each take a part of the data between the
// hosts: as many as the host with the fewest members has.

struct Hierarchy {
  std::vector<std::int32_t> local;  // global ranks of the set on this host, in set order
  int local_index = 0;
  std::vector<std::int32_t>
      peers;            // global ranks that drive the same part, one per host; empty: not driving
  int host_index = 0;   // this host's place; hosts are in set order
  int drivers = 1;      // on each host
  bool driving = true;  // this rank is a driver: local_index < drivers
  // By host index: how many members the host has, and the set index of the first. An allgather
  // needs the rows of a host to lie together: they do when `in_blocks`.
  std::vector<int> host_sizes;
  std::vector<int> first_member;
  bool in_blocks = true;

  int hosts() const { return static_cast<int>(host_sizes.size()); }
};

// `ranks` are the set's global ranks and `hosts` the host of each; `index` is this rank's place.
Hierarchy plan_hierarchy(const std::vector<std::int32_t>& ranks,
                         const std::vector<std::int32_t>& hosts, int index);
// True for several hosts with more than one member on one of them: only then is there a gain.
bool is_worth_hierarchy(const std::vector<std::int32_t>& hosts);

// Collectives of a set that spans hosts, composed of two backends: one within the host and one
// between hosts. Each byte leaves a host once, and all drivers of a host send at the same time.
//   allreduce   reduce-scatter in the host, allreduce of each part between hosts, allgather in
//               the host; small ones: allreduce in the host, between hosts, broadcast
//   allgather   allgather in the host, of parts of that between hosts, and of those in the host

// Keeps the messages of this backend apart from those of the set's other backends.
inline constexpr std::uint32_t kHierarchyTag = 1u << 22;

// `local` serves the members on this host, and is null when this rank is alone there; the result
// owns it. `links` must outlive the result. `set` is the set's id. destroy() deletes the result.
Backend* make_hierarchical_backend(Hierarchy plan, Backend* local, PeerLinks& links,
                                   std::int32_t set, PointToPoint::Options options);

}  // namespace hora::collectives
