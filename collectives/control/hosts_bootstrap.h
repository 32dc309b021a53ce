// SPDX-License-Identifier: Apache-2.0
// How the ranks of several hosts set up what a HostsChannel needs: memory and pipes within each
// host, and connections between the leaders.
#pragma once

#include <chrono>
#include <string>

#include "collectives/control/hosts_channel.h"
#include "collectives/control/tcp_control.h"

namespace hora::collectives {

struct HostsBootstrap {
  Allgather all;   // among all ranks of the world
  Allgather here;  // among the ranks of this host, by place
  ControlIdentity self;
  std::string address;  // this host's numeric address, as the other hosts reach it
  // Of allgather(): by then all have to know which leaders cannot reach each other.
  std::chrono::milliseconds patience{30'000};
};

// Collective. Returns kUnavailable, with the same text on all ranks, when one of them cannot do it;
// the star then continues as it is. Any other error means that the ranks cannot communicate. On
// success `parts` takes over `links`, the star. The caller fills in `parts.plan` and `parts.spin`.
Status bootstrap_hosts(const HostsBootstrap& bootstrap, std::unique_ptr<ControlChannel>& links,
                       HostsParts& parts);

}  // namespace hora::collectives
