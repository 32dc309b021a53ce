// SPDX-License-Identifier: Apache-2.0
#include "launcher/network/relay.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The sockets hold back both sides: a chunk that the far end has not taken stops reading here, so
// the sender's own buffer fills, and no queue of ours grows.

RelayChannels::~RelayChannels() {
  for (const auto& [number, channel] : channels_) loop_.unwatch(channel.socket.get());
}

// In the background: at this end, clients are not authenticated.
void RelayChannels::add(Number number, os::Fd socket) {
  Channel& channel = channels_[number];
  channel.socket = std::move(socket);
  const Status watched = loop_.watch(
      channel.socket.get(), EPOLLIN,
      [this, number](std::uint32_t events) { on_event(number, events); },
      os::EventLoop::Priority::kBackground);
  if (!watched) end(channels_.find(number));
}

// The socket may be gone since the event was seen: another event of the same turn has ended it.
void RelayChannels::on_event(Number number, std::uint32_t events) {
  const auto place = channels_.find(number);
  if (place == channels_.end()) return;
  Channel& channel = place->second;
  if ((events & EPOLLOUT) != 0 && !write_some(place)) return;
  if ((events & EPOLLIN) != 0 && !channel.is_waiting && !read_some(place)) return;
  // Both directions are closed: later bytes have no reader.
  if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (channel.is_waiting || (events & EPOLLIN) == 0)) {
    return end(place);
  }
  watch_for_more(channel);
}

// One chunk, and no more until the other end has taken it.
bool RelayChannels::read_some(Place place) {
  std::array<char, kMostRelayed> chunk;
  const ssize_t got = ::recv(place->second.socket.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (os::would_block(errno) || errno == EINTR)) return true;
  if (got <= 0) {
    end(place);
    return false;
  }
  place->second.is_waiting = true;
  send_(RelayedBytes{place->first, std::string_view(chunk.data(), static_cast<std::size_t>(got))});
  return true;
}

// The other end gets a message when all of the chunk is in the kernel's hands: this is what holds
// it back.
bool RelayChannels::write_some(Place place) {
  Channel& channel = place->second;
  if (channel.outgoing.empty()) return true;
  const ssize_t sent =
      ::send(channel.socket.get(), channel.outgoing.data(), channel.outgoing.size(), MSG_NOSIGNAL);
  if (sent < 0 && (os::would_block(errno) || errno == EINTR)) return true;
  if (sent < 0) {
    end(place);
    return false;
  }
  channel.outgoing.erase(0, static_cast<std::size_t>(sent));
  if (!channel.outgoing.empty()) return true;
  if (channel.is_ending) {
    drop(place);
    return false;
  }
  send_(RelayedBytesTaken{place->first});
  return true;
}

// Without an interest in reading the kernel holds back the peer.
void RelayChannels::watch_for_more(const Channel& channel) {
  const std::uint32_t reads = channel.is_waiting ? 0u : static_cast<std::uint32_t>(EPOLLIN);
  const std::uint32_t writes = channel.outgoing.empty() ? 0u : static_cast<std::uint32_t>(EPOLLOUT);
  (void)loop_.change(channel.socket.get(), reads | writes);
}

// Never blocks: what the socket has no room for stays in `outgoing`, and the far end waits for the
// word that it was taken.
void RelayChannels::on_data(Number number, std::string_view bytes) {
  const auto place = channels_.find(number);
  if (place == channels_.end()) return;
  Channel& channel = place->second;
  if (bytes.empty()) {
    channel.is_ending = true;
    if (channel.outgoing.empty()) drop(place);
    return;
  }
  // A second chunk before the first was taken: the other end does not keep to the rule.
  if (!channel.outgoing.empty()) return end(place);
  channel.outgoing = bytes;
  if (write_some(place)) watch_for_more(channel);
}

// It may have ended here meanwhile.
void RelayChannels::on_taken(Number number) {
  const auto place = channels_.find(number);
  if (place == channels_.end()) return;
  place->second.is_waiting = false;
  watch_for_more(place->second);
}

// The other end gets one message; the frames that it still sends have an unknown number here.
void RelayChannels::end(Place place) {
  const Number number = place->first;
  drop(place);
  send_(RelayedBytes{number});
}

// Without a word to the other end, which knows already.
void RelayChannels::drop(Place place) {
  loop_.unwatch(place->second.socket.get());
  channels_.erase(place);
}

// On the address that the ranks got, and no other.
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

// The rendezvous itself closes unauthenticated connections when there are many, which ends them
// here, too. The limit is for those that it does not see in time.
void RelayDoor::admit(os::Fd socket) {
  if (channels_.size() >= kMostRelayedConnections) return;
  const RelayChannels::Number number = next_++;
  send_(RelayOpened{number});
  channels_.add(number, std::move(socket));
}

}  // namespace hora::launcher
