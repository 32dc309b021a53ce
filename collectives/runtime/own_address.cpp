// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/own_address.h"

#include <errno.h>
#include <sys/socket.h>

#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/socket.h"

namespace hora::collectives {

Result<std::string> address_of_interface(const std::string& name) {
  auto interfaces = net::list_interfaces();
  if (!interfaces) return std::move(interfaces).error();
  const net::Interface* found = nullptr;
  std::string known;
  for (const net::Interface& each : *interfaces) {
    known += (known.empty() ? "" : ", ") + each.name;
    if (each.name != name || each.address.is_link_local()) continue;
    // An interface may have several addresses; IPv4 is the one that all backends support.
    if (found == nullptr || (found->address.v6 && !each.address.v6)) found = &each;
  }
  if (found == nullptr) {
    return make_error(ErrorCode::kUsage,
                      "HOROVOD_GLOO_IFACE=" + name +
                          ": no interface of this name has an address; the interfaces are " +
                          known);
  }
  return format_address(found->address);
}

Result<std::string> own_address_towards(const Endpoint& there) {
  // Connecting a datagram socket only looks up the route.
  sockaddr_storage address{};
  const unsigned length = net::to_sockaddr(there, address);
  const os::Fd socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(errno, "creating a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return errno_error(errno, "finding the route to " + format_endpoint(there));
  }
  auto own = net::local_endpoint(socket.get());
  if (!own) return std::move(own).error();
  // A dual-stack socket reports ::ffff:a.b.c.d, which peers on IPv4 cannot use.
  return format_address(own->address.unmapped());
}

}  // namespace hora::collectives
