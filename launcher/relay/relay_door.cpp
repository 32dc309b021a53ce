// SPDX-License-Identifier: Apache-2.0
// Connections are taken a few at a time: whoever floods the door must not keep the agent from its
// heartbeats, without which the launcher would take the host for lost.
#include "launcher/relay/relay_door.h"

#include <sys/epoll.h>

#include <chrono>

#include "launcher/protocol/agent_limits.h"
#include "rendezvous/net/socket.h"

namespace hora::launcher {

namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr std::chrono::milliseconds kPause{500};  // when no descriptor is free

}  // namespace

// On the address that the ranks were told, and no other.
Result<std::unique_ptr<RelayDoor>> RelayDoor::open(os::EventLoop& loop, const std::string& address,
                                                   const RelayChannels::Send& send) {
  const auto where = parse_ip_address(address);
  if (!where) return where.error();
  auto socket = net::listen_tcp({*where, 0});
  if (!socket) return std::move(socket).error();
  const auto endpoint = net::local_endpoint(socket->get());
  if (!endpoint) return endpoint.error();
  std::unique_ptr<RelayDoor> door(new RelayDoor(loop, std::move(*socket), endpoint->port, send));
  HORA_TRY(loop.watch(
      door->socket_.get(), EPOLLIN, [raw = door.get()](std::uint32_t) { raw->accept_some(); },
      os::EventLoop::Priority::kBackground));
  return door;
}

RelayDoor::~RelayDoor() {
  loop_.cancel(timer_);
  loop_.unwatch(socket_.get());
}

// The rendezvous itself closes strangers when they are many, which ends them here, too. The limit
// is for those that it does not see in time.
void RelayDoor::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = net::accept_tcp(socket_.get());
    if (!accepted) {
      // No descriptor is free, and the listener would stay readable.
      (void)loop_.change(socket_.get(), 0);
      timer_ = loop_.call_after(kPause, [this] { (void)loop_.change(socket_.get(), EPOLLIN); });
      return;
    }
    if (!accepted->has_value()) return;
    if (channels_.size() >= kMostRelayedConnections) continue;
    const RelayChannels::Number number = next_++;
    send_(FrameType::kRelayOpen, u32_payload(number));
    channels_.add(number, std::move((*accepted)->fd));
  }
}

}  // namespace hora::launcher
