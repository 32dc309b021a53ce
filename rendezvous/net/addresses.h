// SPDX-License-Identifier: Apache-2.0
// Network interfaces of this machine, and addresses of names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::net {

// The network interfaces of this host, as plain values. Asks only the kernel (no name service, no
// /sys of another network namespace), so a fully static program can use it.

// One address of one interface.
struct Interface {
  std::string name;  // eth0
  IpAddress address;
  int prefix_length = 0;
  bool up = false;  // up, and with a carrier
  bool loopback = false;
  bool virtual_bridge = false;  // docker0 and the like: other hosts may have the same address
  int speed_mbps = 0;           // 0: unknown
  int mtu = 0;                  // 0: unknown
  friend bool operator==(const Interface&, const Interface&) = default;
};

// One entry for each address, IPv4 and IPv6, in the kernel's order.
Result<std::vector<Interface>> list_interfaces();

// Whether the name of a driver or an interface is that of a bridge between containers or virtual
// machines.  [pure]
bool is_bridge_name(std::string_view interface_name, std::string_view driver);

std::string host_name();  // of this machine, as gethostname(2) says

// Resolves host names to addresses. Thread-safe.

// The addresses of `host` (a name, or a numeric address with or without brackets), in the system's
// order of preference, each once. Blocks as long as the system's resolver does. An unknown name is
// kNotFound; a resolver that cannot answer now is kUnavailable.
Result<std::vector<Endpoint>> resolve_host(const std::string& host, std::uint16_t port);

// Resolves and connects to the first address that answers.
Result<os::Fd> connect_host(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace hora::net
