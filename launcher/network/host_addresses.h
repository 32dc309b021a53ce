// SPDX-License-Identifier: Apache-2.0
// Which addresses of each host could serve the ranks, in which order others try them, and whether
// two agents are on one machine.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/network/network_choice.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/address.h"

namespace hora::launcher {

// Whether two agents are on one machine.

// On one machine, and in one container of it: ranks would see the same processes, addresses and
// GPUs. Nothing is claimed where a host does not say what it is.
bool are_one_machine(const Hello& a, const Hello& b);

}  // namespace hora::launcher

namespace hora::launcher::doctor {

// The addresses by which one host should try another.

// The addresses of a host, those first that are in a network of `from`; three at most.
std::vector<std::string> addresses_towards(const Hello& from, const Hello& to);

}  // namespace hora::launcher::doctor

namespace hora::launcher {

// Which addresses of each host could serve the ranks, and why the others cannot.

struct Candidate {
  InterfaceInfo interface;
  IpAddress address;
  Cidr network;             // the address with the bits after its prefix cleared
  std::size_t wanted = 0;   // place of the selector that names it; 0 when the user named none
  bool reached_by = false;  // the launcher reached the host at this address
  std::string refusal;      // why it cannot be used; empty: it can
};

// The first `prefix_length` bits of an address.
Cidr network_of(const IpAddress& address, int prefix_length);

bool same_machine(const HostNetwork& a, const HostNetwork& b);
bool all_on_one_machine(const std::vector<HostNetwork>& hosts);

// For each host its addresses, the better ones first: what the user named first, IPv4, the one at
// which it was reached, no bridge, the faster, the order of the interfaces. Loopback counts only if
// all hosts are one machine.
std::vector<std::vector<Candidate>> find_candidates(const std::vector<HostNetwork>& hosts,
                                                    const std::vector<std::string>& wanted);

// Where a host tries to reach one that serves parts of the runtime, the most promising address
// first. The network of the job is not chosen yet.
std::vector<std::string> addresses_for(const HostNetwork& host, const HostNetwork& source,
                                       const std::vector<std::string>& interfaces);

}  // namespace hora::launcher
