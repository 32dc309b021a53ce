// SPDX-License-Identifier: Apache-2.0
// What the ranks share besides their connections: memory within a host, links between leaders.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/control/control_channel.h"
#include "collectives/control/hosts_channel.h"
#include "collectives/control/oob_allgather.h"
#include "collectives/runtime/world.h"

namespace hora::collectives {

// Its result, the same on all ranks.
struct BootstrapResult {
  std::string why_no_fast_path;             // empty: there is one
  std::chrono::microseconds round_trip{0};  // from host to host, the longest; 0: not known
};

// Collective. Puts a channel with a fast path around `channel`, where the ranks can have one. Where
// they cannot, they keep to their connections. An error when the ranks cannot talk. `sockets`: the
// ones whose card the other ranks have.
Status extend_channel(const World& world, OobAllgather& oob,
                      std::unique_ptr<ControlChannel>& channel, OwnSockets sockets,
                      BootstrapResult& met);

}  // namespace hora::collectives
