// SPDX-License-Identifier: Apache-2.0
// A peer says hello, is challenged, proves, and is served. It holds the frames itself from the
// hello on, so a delivery that is withdrawn meanwhile still arrives whole. Frames are sealed piece
// by piece as the peer takes them, so that a peer costs the memory of a piece, not of a whole part.
#include "launcher/agent/delivery_server.h"

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <utility>

#include "launcher/agent/delivery_seal.h"
#include "launcher/protocol/delivery_proof.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kSentPerTurn = 256 * 1024;
constexpr PeerLimits kLimits{
    .strangers = 128,  // the hosts of a large job may all connect at one time
    .served = kMostServed,
    .talk_patience = std::chrono::seconds(3),
    .serve_patience = std::chrono::seconds(10),
};

}  // namespace

class DeliveryServer::Talk : public PeerTalk {
 public:
  explicit Talk(const DeliveryServer& server) : server_(server) {}

  std::size_t awaited() const override { return challenged() ? kDeliveryProof : kDeliveryHello; }

  Verdict hear(int fd, std::string_view message) override {
    return challenged() ? check_proof(fd, message) : challenge(fd, message);
  }

  ssize_t send_some(int fd) override {
    if (sealed_.empty()) sealed_ = sealer_->next(*frames_, kSentPerTurn);
    if (sealed_.empty()) return 0;
    const ssize_t sent = ::send(fd, sealed_.data(), sealed_.size(), MSG_NOSIGNAL);
    if (sent > 0) sealed_.erase(0, static_cast<std::size_t>(sent));
    return sent;
  }

 private:
  bool challenged() const { return frames_ != nullptr; }

  // The serving side proves first. A stranger learns a digest of random numbers by that, and
  // nothing about the key or the delivery.
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

  // From here on the peer is of the job. It is not told when its proof is wrong: the end of the
  // connection says so.
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
  auto peers = PeerServer::create(loop, kLimits,
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
