// SPDX-License-Identifier: Apache-2.0
// Strangers can connect to the port, so all that they cost is bounded: their number, what is read
// from them, and their time. Their sockets are background work of the loop.
#include "launcher/agent/delivery_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "rendezvous/base/hex.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/would_block.h"

namespace hora::launcher {

namespace {

// Who has not proved to be of the job. The hosts of a large job may all connect at one time.
constexpr std::size_t kMostStrangers = 128;
constexpr int kAcceptsPerTurn = 16;
constexpr std::size_t kSentPerTurn = 256 * 1024;
constexpr std::chrono::milliseconds kLook{500};
constexpr std::chrono::seconds kProofPatience{3};
constexpr std::chrono::seconds kReadPatience{10};  // of a peer that takes no bytes

}  // namespace

Result<std::unique_ptr<DeliveryServer>> DeliveryServer::create(os::EventLoop& loop,
                                                               std::string key) {
  auto socket = net::listen_everywhere();
  if (!socket) return std::move(socket).error().with_context("listening for other hosts");
  const auto endpoint = net::local_endpoint(socket->get());
  if (!endpoint) return endpoint.error();
  std::unique_ptr<DeliveryServer> server(
      new DeliveryServer(loop, std::move(*socket), endpoint->port, std::move(key)));
  HORA_TRY(loop.watch(
      server->socket_.get(), EPOLLIN, [raw = server.get()](std::uint32_t) { raw->accept_some(); },
      os::EventLoop::Priority::kBackground));
  return server;
}

DeliveryServer::DeliveryServer(os::EventLoop& loop, os::Fd socket, int port, std::string key)
    : loop_(loop), socket_(std::move(socket)), port_(port), key_(std::move(key)) {
  timer_ = loop_.call_after(kLook, [this] { look_at_deadlines(); });
}

DeliveryServer::~DeliveryServer() {
  loop_.cancel(timer_);
  loop_.unwatch(socket_.get());
  for (const auto& [number, peer] : peers_) loop_.unwatch(peer.fd.get());
}

void DeliveryServer::offer(const std::string& id, std::shared_ptr<const std::string> frames) {
  offers_[id] = std::move(frames);
}

void DeliveryServer::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = net::accept_tcp(socket_.get());
    if (!accepted) {
      // No descriptor is free, and the listener would stay readable: look_at_deadlines() goes on.
      (void)loop_.change(socket_.get(), 0);
      return;
    }
    if (!accepted->has_value()) return;
    admit(std::move((*accepted)->fd));
  }
}

// Watched in the background until it has proved to be of the job; a few peers that have are no
// burden there either.
void DeliveryServer::admit(os::Fd fd) {
  // A newcomer may be of the job, so a stranger gives way to it.
  if (peers_.size() - served_ >= kMostStrangers) drop_oldest_stranger();
  const Number number = next_++;
  Peer& peer = peers_[number];
  peer.fd = std::move(fd);
  peer.deadline = Clock::now() + kProofPatience;
  const auto watched = loop_.watch(
      peer.fd.get(), EPOLLIN, [this, number](std::uint32_t) { on_event(number); },
      os::EventLoop::Priority::kBackground);
  if (!watched) peers_.erase(number);
}

// Those of the job prove at once what they are: the oldest is the least likely to be one.
void DeliveryServer::drop_oldest_stranger() {
  const auto stranger = std::find_if(peers_.begin(), peers_.end(),
                                     [](const auto& each) { return !each.second.proved; });
  if (stranger != peers_.end()) drop(stranger->first);
}

// A peer may be gone already: another one's turn may have made room for a newcomer.
void DeliveryServer::on_event(Number number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  const bool stays = peer.proved ? send_some(peer) : listen_to(peer);
  if (!stays) drop(number);
}

// Never reads more than the next message has: whatever a stranger sends beyond it stays in the
// kernel, and goes with the socket.
bool DeliveryServer::listen_to(Peer& peer) {
  std::array<char, kDeliveryHello> chunk;
  const bool challenged = !peer.talk.id.empty();
  const std::size_t wanted = (challenged ? kDeliveryProof : kDeliveryHello) - peer.heard.size();
  const ssize_t got = ::recv(peer.fd.get(), chunk.data(), wanted, 0);
  if (got < 0) return os::would_block(errno) || errno == EINTR;
  if (got == 0) return false;
  peer.heard.append(chunk.data(), static_cast<std::size_t>(got));
  if (static_cast<std::size_t>(got) < wanted) return true;
  return challenged ? check_proof(peer) : challenge(peer);
}

// The serving side proves first. A stranger learns a digest of random numbers by that, and nothing
// about the key or the delivery.
bool DeliveryServer::challenge(Peer& peer) {
  const std::string_view hello = peer.heard;
  if (hello.substr(0, kDeliveryMagic.size()) != kDeliveryMagic) return false;
  peer.talk.fetching_nonce = hello.substr(kDeliveryMagic.size(), kDeliveryNonce);
  peer.talk.id = hello.substr(kDeliveryMagic.size() + kDeliveryNonce);
  peer.talk.serving_nonce = os::random_bytes(kDeliveryNonce);
  const auto offer = offers_.find(peer.talk.id);
  if (offer == offers_.end()) return false;
  peer.frames = offer->second;
  peer.heard.clear();
  const std::string answer =
      peer.talk.serving_nonce + delivery_proof(key_, DeliveryRole::kServing, peer.talk);
  // So few bytes always fit into an empty socket's buffer.
  return ::send(peer.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(answer.size());
}

// From here on the peer is of the job. It is not told when its proof is wrong: the end of the
// connection says so.
bool DeliveryServer::check_proof(Peer& peer) {
  const std::string wanted = delivery_proof(key_, DeliveryRole::kFetching, peer.talk);
  if (!equals_in_constant_time(peer.heard, wanted)) return false;
  const char answer = served_ < kMostServed ? kDeliveryGo : kDeliveryLater;
  if (::send(peer.fd.get(), &answer, 1, MSG_NOSIGNAL) != 1 || answer == kDeliveryLater) {
    return false;
  }
  peer.proved = true;
  ++served_;
  peer.seal.emplace(delivery_seal_key(key_, peer.talk));
  peer.deadline = Clock::now() + kReadPatience;
  return loop_.change(peer.fd.get(), EPOLLOUT).has_value();
}

// A piece for each turn of the loop, so that several peers share the link evenly and the launcher's
// stream is not kept waiting.
bool DeliveryServer::send_some(Peer& peer) {
  if (peer.sealed.empty()) peer.sealed = peer.seal->next(*peer.frames, kSentPerTurn);
  if (peer.sealed.empty()) return false;  // it has everything
  const ssize_t sent = ::send(peer.fd.get(), peer.sealed.data(), peer.sealed.size(), MSG_NOSIGNAL);
  if (sent < 0) return os::would_block(errno) || errno == EINTR;
  peer.sealed.erase(0, static_cast<std::size_t>(sent));
  peer.deadline = Clock::now() + kReadPatience;
  return true;
}

void DeliveryServer::drop(Number number) {
  const auto found = peers_.find(number);
  loop_.unwatch(found->second.fd.get());
  if (found->second.proved) --served_;
  peers_.erase(found);
}

// One timer for all: deadlines are there to get rid of peers, and need not be exact.
void DeliveryServer::look_at_deadlines() {
  const auto now = Clock::now();
  for (auto each = peers_.begin(); each != peers_.end();) {
    const auto number = (each++)->first;
    if (peers_.at(number).deadline < now) drop(number);
  }
  (void)loop_.change(socket_.get(), EPOLLIN);
  timer_ = loop_.call_after(kLook, [this] { look_at_deadlines(); });
}

}  // namespace hora::launcher
