// SPDX-License-Identifier: Apache-2.0
// The boot id and the namespaces of network and PIDs distinguish machines and containers. Virtual
// machines that were resumed from one image have the same ones, and addresses of their own.
#include "launcher/protocol/machine_identity.h"

#include <algorithm>
#include <set>
#include <string>

namespace hora::launcher {

namespace {

// Networks of containers have the same addresses on every machine.
std::set<std::string> own_addresses(const Hello& hello) {
  std::set<std::string> addresses;
  for (const InterfaceInfo& each : hello.interfaces) {
    if (!each.loopback && !each.virtual_bridge) addresses.insert(each.address);
  }
  return addresses;
}

}  // namespace

bool are_one_machine(const Hello& a, const Hello& b) {
  if (a.boot_id.empty() || a.boot_id != b.boot_id || a.pid_namespace != b.pid_namespace) {
    return false;
  }
  // An address may come or go between two looks, so one in common is enough.
  const auto own = own_addresses(a);
  const auto other = own_addresses(b);
  return (own.empty() && other.empty()) ||
         std::any_of(own.begin(), own.end(),
                     [&other](const std::string& address) { return other.count(address) > 0; });
}

}  // namespace hora::launcher
