// How the ranks of several hosts set up what a HostsChannel needs: memory and pipes within each
// host, connections between the leaders.
#pragma once

#include <string>

#include "collectives/control/hosts_channel.h"
#include "collectives/control/tcp_control.h"

namespace hora::collectives {

struct HostsBootstrap {
  Allgather all;   // of the world
  Allgather here;  // of the ranks of this host, by place
  ControlIdentity self;
  std::string address;  // own, numeric, towards the other hosts
};

// Collective. kUnavailable, with the same text on all ranks: one of them cannot, and the star goes
// on as it is. Any other error: the ranks cannot talk. `links`, the star, is taken over when all is
// well. `parts.plan` and `parts.spin` are given.
Status bootstrap_hosts(const HostsBootstrap& bootstrap, std::unique_ptr<ControlChannel>& links,
                       HostsParts& parts);

}  // namespace hora::collectives
