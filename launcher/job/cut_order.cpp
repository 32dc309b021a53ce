// Builds the rules for cutting two hosts off from each other without cutting off the launcher.
#include "launcher/job/cut_order.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

bool has_address(const HostNetwork& host, const std::string& address) {
  return std::any_of(host.interfaces.begin(), host.interfaces.end(),
                     [&address](const InterfaceInfo& nic) { return nic.address == address; });
}

}  // namespace

Result<CutOrder> cut_order(const HostNetwork& host, const HostNetwork& peer,
                           const std::vector<std::string>& ssh_connections, int rendezvous_port) {
  CutOrder cut;
  for (const InterfaceInfo& nic : peer.interfaces) {
    // An address that both have (docker0, say) is not the peer's.
    if (!nic.loopback && !has_address(host, nic.address)) cut.addresses.push_back(nic.address);
  }
  if (cut.addresses.empty()) {
    return make_error(ErrorCode::kFailed,
                      "--chaos cut: " + host.name + " and " + peer.name +
                          " are one machine: there is nothing to cut between them");
  }
  // SSH_CONNECTION is "client-address client-port server-address server-port". The ports identify
  // the launcher's own connections, which stay open.
  for (const std::string& connection : ssh_connections) {
    const auto words = split(connection, ' ');
    if (words.size() != 4) continue;
    const auto client = parse_int<int>(words[1]);
    const auto server = parse_int<int>(words[3]);
    if (client && server) cut.control_links.emplace_back(*client, *server);
  }
  // Ranks lose each other, not the launcher's rendezvous.
  cut.rendezvous_port = rendezvous_port;
  return cut;
}

}  // namespace hora::launcher
