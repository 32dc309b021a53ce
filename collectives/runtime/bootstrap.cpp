#include "collectives/runtime/bootstrap.h"

#include <errno.h>
#include <sys/socket.h>

#include "rendezvous/http_store.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/resolve.h"
#include "rendezvous/net/socket.h"

namespace hora::collectives {

namespace {

// The address of the interface that the launcher chose for this host.
Result<std::string> address_of_interface(const std::string& name) {
  auto interfaces = net::list_interfaces();
  if (!interfaces) return std::move(interfaces).error();
  const net::Interface* found = nullptr;
  std::string known;
  for (const net::Interface& each : *interfaces) {
    known += (known.empty() ? "" : ", ") + each.name;
    if (each.name != name || each.address.is_link_local()) continue;
    if (found == nullptr || (found->address.v6 && !each.address.v6)) found = &each;
  }
  if (found == nullptr) {
    return make_error(
        ErrorCode::kUsage,
        "HOROVOD_GLOO_IFACE=" + name + ": no such interface with an address; there are " + known);
  }
  return format_address(found->address);
}

// The address from which the kernel would send to `there`. Sends nothing: connecting a datagram
// socket only looks up the route.
Result<std::string> own_address_towards(const Endpoint& there) {
  sockaddr_storage address{};
  const unsigned length = net::to_sockaddr(there, address);
  const os::Fd socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(errno, "making a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return errno_error(errno, "finding the route to " + format_endpoint(there));
  }
  auto own = net::local_endpoint(socket.get());
  if (!own) return std::move(own).error();
  return format_address(own->address.unmapped());
}

Result<std::string> address_by_route(const Settings& settings) {
  auto rendezvous = net::resolve_host(settings.rendezvous_address,
                                      static_cast<std::uint16_t>(settings.rendezvous_port));
  if (!rendezvous) return std::move(rendezvous).error().with_context("finding the rendezvous");
  Error last = make_error(ErrorCode::kNotFound, "the rendezvous has no address");
  for (const Endpoint& each : *rendezvous) {
    auto own = own_address_towards(each);
    if (own) return own;
    last = std::move(own).error();
  }
  return last;
}

}  // namespace

Result<Communicator::Start> start_from_environment(
    std::vector<std::vector<std::int32_t>> process_sets, int generation) {
  auto settings = parse_settings(process_variable);
  if (!settings) return std::move(settings).error();
  Communicator::Start start;
  start.settings = std::move(*settings);
  start.process_sets = std::move(process_sets);
  if (start.settings.size == 1) return start;
  auto address = start.settings.interface.empty() ? address_by_route(start.settings)
                                                  : address_of_interface(start.settings.interface);
  if (!address) return std::move(address).error();
  start.address = std::move(*address);
  rendezvous::HttpStoreOptions options;
  options.host = start.settings.rendezvous_address;
  options.port = static_cast<std::uint16_t>(start.settings.rendezvous_port);
  options.token = start.settings.rendezvous_token;
  start.store = std::make_shared<rendezvous::HttpStore>(std::move(options));
  start.meeting_key =
      "hora_control/" + (start.settings.round.empty() ? "start-" + std::to_string(generation)
                                                      : "round-" + start.settings.round);
  return start;
}

}  // namespace hora::collectives
