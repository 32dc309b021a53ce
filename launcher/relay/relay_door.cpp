// SPDX-License-Identifier: Apache-2.0
#include "launcher/relay/relay_door.h"

#include <utility>

#include "launcher/protocol/agent_limits.h"
#include "rendezvous/net/socket.h"

namespace hora::launcher {

// On the address that the ranks were told, and no other.
Result<std::unique_ptr<RelayDoor>> RelayDoor::open(os::EventLoop& loop, const std::string& address,
                                                   const RelayChannels::Send& send) {
  const auto where = parse_ip_address(address);
  if (!where) return where.error();
  auto socket = net::listen_tcp({*where, 0});
  if (!socket) return std::move(socket).error();
  std::unique_ptr<RelayDoor> door(new RelayDoor(loop, std::move(*socket), send));
  HORA_TRY(door->acceptor_.start());
  return door;
}

RelayDoor::RelayDoor(os::EventLoop& loop, os::Fd socket, const RelayChannels::Send& send)
    : send_(send),
      channels_(loop, send),
      acceptor_(loop, std::move(socket),
                [this](net::Accepted accepted) { admit(std::move(accepted.fd)); }) {}

// The rendezvous itself closes strangers when they are many, which ends them here, too. The limit
// is for those that it does not see in time.
void RelayDoor::admit(os::Fd socket) {
  if (channels_.size() >= kMostRelayedConnections) return;
  const RelayChannels::Number number = next_++;
  send_(FrameType::kRelayOpen, u32_payload(number));
  channels_.add(number, std::move(socket));
}

}  // namespace hora::launcher
