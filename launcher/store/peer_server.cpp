// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/peer_server.h"

#include <sodium.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "launcher/protocol/delivery.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

// The one file that knows libsodium.

namespace {

static_assert(kSealHeader == crypto_secretstream_xchacha20poly1305_HEADERBYTES);
static_assert(kSealOverhead == crypto_secretstream_xchacha20poly1305_ABYTES);

using Bytes = const unsigned char*;
Bytes bytes_of(std::string_view text) { return reinterpret_cast<Bytes>(text.data()); }

// Chooses the vector code of this processor; without it, libsodium runs portable code, a sixth as
// fast. A second call does nothing. It fails where the kernel gives no random numbers, without
// which os::random_bytes() has given up already.
void initialize() {
  if (::sodium_init() < 0) std::abort();
}

// The tag of the last piece distinguishes a complete stream from a cut one.
unsigned char tag_of(bool last) {
  return last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL
              : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
}

}  // namespace

struct DeliverySealer::State {
  crypto_secretstream_xchacha20poly1305_state stream;
  std::string header;  // until it has been given
  std::size_t sealed_to = 0;

  ~State() { ::sodium_memzero(&stream, sizeof stream); }
};

DeliverySealer::DeliverySealer(std::string_view key) : state_(std::make_unique<State>()) {
  initialize();
  state_->header.resize(kSealHeader);
  ::crypto_secretstream_xchacha20poly1305_init_push(
      &state_->stream, reinterpret_cast<unsigned char*>(state_->header.data()), bytes_of(key));
}

DeliverySealer::~DeliverySealer() = default;
DeliverySealer::DeliverySealer(DeliverySealer&&) noexcept = default;

std::string DeliverySealer::next(std::string_view contents, std::size_t most) {
  State& state = *state_;
  std::string sealed = std::exchange(state.header, {});
  while (state.sealed_to < contents.size() && sealed.size() < most) {
    const std::string_view piece = contents.substr(state.sealed_to, kSealedPiece);
    state.sealed_to += piece.size();
    const std::size_t at = sealed.size();
    sealed.resize(at + piece.size() + kSealOverhead);
    ::crypto_secretstream_xchacha20poly1305_push(
        &state.stream, reinterpret_cast<unsigned char*>(sealed.data() + at), nullptr,
        bytes_of(piece), piece.size(), nullptr, 0, tag_of(state.sealed_to == contents.size()));
  }
  return sealed;
}

struct DeliveryOpener::State {
  crypto_secretstream_xchacha20poly1305_state stream;
  std::string key;  // until the header has arrived
  std::string pending;
  std::size_t left;     // of the contents, in pieces that have not been opened
  std::size_t missing;  // on the wire

  ~State() {
    ::sodium_memzero(&stream, sizeof stream);
    ::sodium_memzero(key.data(), key.size());
  }
  std::size_t next_size() const {
    return key.empty() ? std::min(left, kSealedPiece) + kSealOverhead : kSealHeader;
  }
  Status open(std::string_view piece, std::string& contents);
};

DeliveryOpener::DeliveryOpener(std::string_view key, std::size_t contents_size)
    : state_(std::make_unique<State>()) {
  initialize();
  state_->key = key;
  state_->left = contents_size;
  state_->missing = sealed_size(contents_size);
}

DeliveryOpener::~DeliveryOpener() = default;
DeliveryOpener::DeliveryOpener(DeliveryOpener&&) noexcept = default;

std::size_t DeliveryOpener::missing() const { return state_->missing; }

// A piece is opened when it is complete: bytes without a valid tag must not be used.
Status DeliveryOpener::feed(std::string_view bytes, std::string& contents) {
  State& state = *state_;
  state.missing -= bytes.size();
  while (!bytes.empty()) {
    const std::size_t size = state.next_size();
    // Most pieces come in one read with others: they are opened where they lie.
    if (state.pending.empty() && bytes.size() >= size) {
      HORA_TRY(state.open(bytes.substr(0, size), contents));
      bytes.remove_prefix(size);
      continue;
    }
    const std::string_view some = bytes.substr(0, size - state.pending.size());
    state.pending.append(some);
    bytes.remove_prefix(some.size());
    if (state.pending.size() < size) return Ok{};
    HORA_TRY(state.open(state.pending, contents));
    state.pending.clear();
  }
  return Ok{};
}

Status DeliveryOpener::State::open(std::string_view piece, std::string& contents) {
  if (!key.empty()) {
    // Any header is possible; a wrong one shows at the first piece.
    (void)::crypto_secretstream_xchacha20poly1305_init_pull(&stream, bytes_of(piece),
                                                            bytes_of(key));
    ::sodium_memzero(key.data(), key.size());
    key.clear();
    return Ok{};
  }
  const std::size_t size = piece.size() - kSealOverhead;
  const std::size_t at = contents.size();
  contents.resize(at + size);
  unsigned char tag = 0;
  const int opened = ::crypto_secretstream_xchacha20poly1305_pull(
      &stream, reinterpret_cast<unsigned char*>(contents.data() + at), nullptr, &tag,
      bytes_of(piece), piece.size(), nullptr, 0);
  left -= size;
  if (opened != 0 || tag != tag_of(left == 0)) {
    contents.resize(at);
    return make_error(ErrorCode::kFailed, "what it sent was changed on the way");
  }
  return Ok{};
}

// All sockets are background work of the loop: a flood of connections must not keep the launcher's
// stream waiting, and a few peers that are served are a small load.

namespace {

constexpr std::chrono::milliseconds kPeerLook{500};

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
  timer_ = loop_.call_after(kPeerLook, [this] { look_at_deadlines(); });
}

// Peers that are being served find the end of the stream, and turn to another source.
PeerServer::~PeerServer() {
  loop_.cancel(timer_);
  for (const auto& [number, peer] : peers_) loop_.unwatch(peer.fd.get());
}

// A new connection may be of the job, so an unauthenticated one gives way to it.
void PeerServer::admit(os::Fd fd) {
  if (peers_.size() - served_ >= limits_.pending) drop_oldest_pending();
  const Number number = next_++;
  Peer& peer = peers_[number];
  peer.fd = std::move(fd);
  peer.talk = make_talk_();
  peer.deadline = Clock::now() + limits_.talk_timeout;
  const auto watched = loop_.watch(
      peer.fd.get(), EPOLLIN, [this, number](std::uint32_t) { on_event(number); },
      os::EventLoop::Priority::kBackground);
  if (!watched) peers_.erase(number);
}

// Those of the job authenticate at once: the oldest is the least likely to be one.
void PeerServer::drop_oldest_pending() {
  const auto pending = std::find_if(peers_.begin(), peers_.end(),
                                    [](const auto& each) { return !each.second.served; });
  if (pending != peers_.end()) drop(pending->first);
}

// A peer may be gone already: another one's turn may have closed it in favour of a new connection.
void PeerServer::on_event(Number number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  const bool stays = peer.served ? send_some(peer) : listen_to(peer);
  if (!stays) drop(number);
}

// Never reads more than the message has: bytes that an unauthenticated peer sends after it stay in
// the kernel, and go with the socket.
bool PeerServer::listen_to(Peer& peer) {
  std::array<char, 256> chunk;
  const std::size_t awaited = peer.talk->awaited();
  const ssize_t got = ::recv(peer.fd.get(), chunk.data(),
                             std::min(chunk.size(), awaited - peer.received.size()), 0);
  if (got < 0) return os::would_block(errno) || errno == EINTR;
  if (got == 0) return false;
  peer.received.append(chunk.data(), static_cast<std::size_t>(got));
  if (peer.received.size() < awaited) return true;
  const std::string message = std::exchange(peer.received, {});
  switch (peer.talk->receive(peer.fd.get(), message)) {
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
  peer.deadline = Clock::now() + limits_.serve_timeout;
  return loop_.change(peer.fd.get(), EPOLLOUT).has_value();
}

// One piece in each turn of the loop, so that several peers share the link evenly. A deadline for
// the whole would cut off a slow link; one for each piece ends peers that take nothing.
bool PeerServer::send_some(Peer& peer) {
  const ssize_t sent = peer.talk->send_some(peer.fd.get());
  if (sent < 0) return os::would_block(errno) || errno == EINTR;
  peer.deadline = Clock::now() + limits_.serve_timeout;
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
  timer_ = loop_.call_after(kPeerLook, [this] { look_at_deadlines(); });
}

// A peer says hello, is challenged, proves, and is served. It holds the frames itself from the
// hello on, so a delivery that is withdrawn meanwhile still arrives whole. Frames are sealed piece
// by piece as the peer takes them, so that a peer costs the memory of a piece, not of a whole part.

namespace {

constexpr std::size_t kPeerSentPerTurn = 256 * 1024;
constexpr PeerLimits kPeerLimits{
    .pending = 128,  // the hosts of a large job may all connect at one time
    .served = kMostServed,
    .talk_timeout = std::chrono::seconds(3),
    .serve_timeout = std::chrono::seconds(10),
};

}  // namespace

class DeliveryServer::Talk : public PeerTalk {
 public:
  explicit Talk(const DeliveryServer& server) : server_(server) {}

  std::size_t awaited() const override { return challenged() ? kDeliveryProof : kDeliveryHello; }

  Verdict receive(int fd, std::string_view message) override {
    return challenged() ? check_proof(fd, message) : challenge(fd, message);
  }

  ssize_t send_some(int fd) override {
    if (sealed_.empty()) sealed_ = sealer_->next(*frames_, kPeerSentPerTurn);
    if (sealed_.empty()) return 0;
    const ssize_t sent = ::send(fd, sealed_.data(), sealed_.size(), MSG_NOSIGNAL);
    if (sent > 0) sealed_.erase(0, static_cast<std::size_t>(sent));
    return sent;
  }

 private:
  bool challenged() const { return frames_ != nullptr; }

  // The serving side proves first. An unauthenticated peer gets a digest of random numbers from
  // that, and learns nothing about the key or the delivery.
  Verdict challenge(int fd, std::string_view hello) {
    if (hello.substr(0, kDeliveryMagic.size()) != kDeliveryMagic) return Verdict::kGoes;
    talk_.fetching_nonce = hello.substr(kDeliveryMagic.size(), kDeliveryNonce);
    talk_.id = hello.substr(kDeliveryMagic.size() + kDeliveryNonce);
    talk_.serving_nonce = os::random_bytes(kDeliveryNonce);
    const auto offer = server_.offers_.find(talk_.id);
    if (offer == server_.offers_.end()) return Verdict::kGoes;
    frames_ = offer->second;
    const std::string proof = delivery_proof(server_.key_, DeliveryRole::kServing, talk_);
    return say(fd, talk_.serving_nonce + proof) ? Verdict::kMayGoOn : Verdict::kGoes;
  }

  // From here on the peer belongs to the job. A wrong proof ends its connection without a message.
  Verdict check_proof(int fd, std::string_view proof) {
    const std::string wanted = delivery_proof(server_.key_, DeliveryRole::kFetching, talk_);
    if (!equals_in_constant_time(proof, wanted)) return Verdict::kGoes;
    const bool has_room = server_.peers_->has_room();
    const char answer = has_room ? kDeliveryGo : kDeliveryLater;
    if (!say(fd, {&answer, 1}) || !has_room) return Verdict::kGoes;
    sealer_.emplace(delivery_seal_key(server_.key_, talk_));
    return Verdict::kIsServed;
  }

  // So few bytes always fit into an empty socket's buffer.
  static bool say(int fd, std::string_view bytes) {
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  const DeliveryServer& server_;
  DeliveryTalk talk_;
  std::shared_ptr<const std::string> frames_;  // found by the hello
  std::optional<DeliverySealer> sealer_;       // once it is served
  std::string sealed_;                         // what was sealed and is not sent
};

Result<std::unique_ptr<DeliveryServer>> DeliveryServer::create(os::EventLoop& loop,
                                                               std::string key) {
  std::unique_ptr<DeliveryServer> server(new DeliveryServer(std::move(key)));
  auto peers = PeerServer::create(loop, kPeerLimits,
                                  [raw = server.get()] { return std::make_unique<Talk>(*raw); });
  if (!peers) return std::move(peers).error();
  server->peers_ = std::move(*peers);
  return server;
}

DeliveryServer::DeliveryServer(std::string key) : key_(std::move(key)) {}

void DeliveryServer::offer(const std::string& id, std::shared_ptr<const std::string> frames) {
  offers_[id] = std::move(frames);
}

}  // namespace hora::launcher
