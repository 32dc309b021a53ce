// SPDX-License-Identifier: Apache-2.0
// All sockets are background work of the loop: a flood of connections must not keep the launcher's
// stream waiting, and a few peers that are served are no burden there either.
#include "launcher/agent/peer_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/would_block.h"

namespace hora::launcher {

namespace {

constexpr std::chrono::milliseconds kLook{500};

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::create(os::EventLoop& loop, PeerLimits limits,
                                                       MakeTalk make_talk) {
  auto socket = net::listen_everywhere();
  if (!socket) return std::move(socket).error().with_context("listening for other hosts");
  std::unique_ptr<PeerServer> server(
      new PeerServer(loop, limits, std::move(make_talk), std::move(*socket)));
  HORA_TRY(server->acceptor_.start());
  return server;
}

PeerServer::PeerServer(os::EventLoop& loop, PeerLimits limits, MakeTalk make_talk, os::Fd socket)
    : loop_(loop),
      limits_(limits),
      make_talk_(std::move(make_talk)),
      acceptor_(loop, std::move(socket),
                [this](net::Accepted accepted) { admit(std::move(accepted.fd)); }) {
  timer_ = loop_.call_after(kLook, [this] { look_at_deadlines(); });
}

// Peers that are being served find the end of the stream, and turn to another source.
PeerServer::~PeerServer() {
  loop_.cancel(timer_);
  for (const auto& [number, peer] : peers_) loop_.unwatch(peer.fd.get());
}

// A newcomer may be of the job, so a stranger gives way to it.
void PeerServer::admit(os::Fd fd) {
  if (peers_.size() - served_ >= limits_.strangers) drop_oldest_stranger();
  const Number number = next_++;
  Peer& peer = peers_[number];
  peer.fd = std::move(fd);
  peer.talk = make_talk_();
  peer.deadline = Clock::now() + limits_.talk_patience;
  const auto watched = loop_.watch(
      peer.fd.get(), EPOLLIN, [this, number](std::uint32_t) { on_event(number); },
      os::EventLoop::Priority::kBackground);
  if (!watched) peers_.erase(number);
}

// Those of the job say at once what they are: the oldest is the least likely to be one.
void PeerServer::drop_oldest_stranger() {
  const auto stranger = std::find_if(peers_.begin(), peers_.end(),
                                     [](const auto& each) { return !each.second.served; });
  if (stranger != peers_.end()) drop(stranger->first);
}

// A peer may be gone already: another one's turn may have made room for a newcomer.
void PeerServer::on_event(Number number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  const bool stays = peer.served ? send_some(peer) : listen_to(peer);
  if (!stays) drop(number);
}

// Never reads more than the message has: whatever a stranger sends beyond it stays in the kernel,
// and goes with the socket.
bool PeerServer::listen_to(Peer& peer) {
  std::array<char, 256> chunk;
  const std::size_t awaited = peer.talk->awaited();
  const ssize_t got =
      ::recv(peer.fd.get(), chunk.data(), std::min(chunk.size(), awaited - peer.heard.size()), 0);
  if (got < 0) return os::would_block(errno) || errno == EINTR;
  if (got == 0) return false;
  peer.heard.append(chunk.data(), static_cast<std::size_t>(got));
  if (peer.heard.size() < awaited) return true;
  const std::string message = std::exchange(peer.heard, {});
  switch (peer.talk->hear(peer.fd.get(), message)) {
    case PeerTalk::Verdict::kGoes:
      break;
    case PeerTalk::Verdict::kMayGoOn:
      return true;
    case PeerTalk::Verdict::kIsServed:
      return begin_serving(peer);
  }
  return false;
}

// From here on it is only written to: whatever else it says stays in the kernel, and cannot wake
// the loop.
bool PeerServer::begin_serving(Peer& peer) {
  peer.served = true;
  ++served_;
  peer.deadline = Clock::now() + limits_.serve_patience;
  return loop_.change(peer.fd.get(), EPOLLOUT).has_value();
}

// A piece for each turn of the loop, so that several peers share the link evenly. A deadline for
// the whole would cut off a slow link that does its best; one for each piece ends who takes
// nothing.
bool PeerServer::send_some(Peer& peer) {
  const ssize_t sent = peer.talk->send_some(peer.fd.get());
  if (sent < 0) return os::would_block(errno) || errno == EINTR;
  peer.deadline = Clock::now() + limits_.serve_patience;
  return sent > 0;
}

void PeerServer::drop(Number number) {
  const auto found = peers_.find(number);
  loop_.unwatch(found->second.fd.get());
  if (found->second.served) --served_;
  peers_.erase(found);
}

// One timer for all: deadlines are there to get rid of peers, and need not be exact.
void PeerServer::look_at_deadlines() {
  const auto now = Clock::now();
  for (auto each = peers_.begin(); each != peers_.end();) {
    const auto number = (each++)->first;
    if (peers_.at(number).deadline < now) drop(number);
  }
  timer_ = loop_.call_after(kLook, [this] { look_at_deadlines(); });
}

}  // namespace hora::launcher
