// The network interfaces of this host, as plain values. Asks the kernel only (no name service, no
// /sys of another network namespace), so a fully static program can use it.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"

namespace hora::net {

// One address of one interface.
struct Interface {
  std::string name;  // eth0
  IpAddress address;
  int prefix_length = 0;
  bool up = false;  // up, and with a carrier
  bool loopback = false;
  bool virtual_bridge = false;  // a bridge, docker0 and the like: its address says little
  int speed_mbps = 0;           // 0: unknown
  int mtu = 0;                  // 0: unknown
  friend bool operator==(const Interface&, const Interface&) = default;
};

// In the kernel's order; one entry for each address, IPv4 and IPv6.
Result<std::vector<Interface>> list_interfaces();

// Whether a driver's or an interface's name is that of a bridge between containers or virtual
// machines.  [pure]
bool is_bridge_name(std::string_view interface_name, std::string_view driver);

}  // namespace hora::net
