// SPDX-License-Identifier: Apache-2.0
// Which addresses of each host could serve the ranks, and why the others cannot.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/network/network_choice.h"
#include "rendezvous/base/address.h"

namespace hora::launcher {

struct Candidate {
  InterfaceInfo interface;
  IpAddress address;
  Cidr network;             // the address with the bits behind its prefix cleared
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

}  // namespace hora::launcher
