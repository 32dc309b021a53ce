// SPDX-License-Identifier: Apache-2.0
// Whatever goes wrong with a source has the same end: refuse() notes why and turns to the next one.
// Only a source that asks for it is tried again, since the launcher is one that always works.
#include "launcher/agent/delivery_fetch.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "launcher/agent/file_unpacker.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/thread_buffer.h"
#include "rendezvous/os/would_block.h"

namespace hora::launcher {

namespace {

// A host that cannot be reached is found out soon, since the launcher can send as well.
constexpr std::chrono::milliseconds kReachPatience{2'000};
constexpr std::chrono::milliseconds kSilencePatience{3'000};
// With a source that serves others. It takes turns, and the launcher's sending would take longer.
constexpr std::chrono::seconds kBusyPatience{10};
constexpr std::chrono::milliseconds kShortestPause{20};
constexpr std::chrono::milliseconds kLongestPause{500};
constexpr std::chrono::milliseconds kLook{100};
constexpr std::size_t kChunk = 256 * 1024;

}  // namespace

DeliveryFetch::DeliveryFetch(os::EventLoop& loop, FetchDelivery order,
                             std::function<void(Outcome)> on_done)
    : loop_(loop), order_(std::move(order)), on_done_(std::move(on_done)), pause_(kShortestPause) {}

DeliveryFetch::~DeliveryFetch() { close_all(); }

void DeliveryFetch::start() { try_source(); }

void DeliveryFetch::close_all() {
  loop_.cancel(timer_);
  timer_ = 0;
  for (const auto& attempt : attempts_) {
    if (attempt->fd.valid()) loop_.unwatch(attempt->fd.get());
  }
  attempts_.clear();
  chosen_ = nullptr;
}

void DeliveryFetch::try_next() {
  ++source_;
  patient_until_ = {};
  pause_ = kShortestPause;
  try_source();
}

// All addresses at a time: which of them work from here shows soonest by trying.
void DeliveryFetch::try_source() {
  close_all();
  if (source_ >= order_.sources.size()) return finish(nullptr);
  const DeliverySource& source = order_.sources[source_];
  last_refusal_ = "no address is known";
  going_ = false;
  frames_.clear();
  heard_at_ = Clock::now();
  deadline_ = heard_at_ + std::chrono::milliseconds(order_.patience_ms);
  for (const std::string& address : source.addresses) begin(address, source.port);
  // Refused at once, or nothing to try: told by the timer, so that nobody is called from start().
  watch_time();
}

// A failure here is one of this address; the others are tried.
void DeliveryFetch::begin(const std::string& address, int port) {
  const auto parsed = parse_ip_address(address);
  if (!parsed) return;
  auto attempt = std::make_unique<Attempt>();
  sockaddr_storage storage{};
  const unsigned size = net::to_sockaddr({*parsed, static_cast<std::uint16_t>(port)}, storage);
  attempt->fd = os::Fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!attempt->fd.valid() ||
      (::connect(attempt->fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 &&
       errno != EINPROGRESS)) {
    last_refusal_ = std::strerror(errno);
    return;
  }
  const auto watched = loop_.watch(attempt->fd.get(), EPOLLOUT,
                                   [this, raw = attempt.get()](std::uint32_t) { on_event(*raw); });
  if (!watched) {
    last_refusal_ = watched.error().message;
    return;
  }
  attempts_.push_back(std::move(attempt));
}

void DeliveryFetch::on_event(Attempt& attempt) {
  if (&attempt == chosen_) return receive();
  if (!(attempt.connected ? hear_challenge(attempt) : greet(attempt))) {
    give_up(attempt);
  }
}

// The connection is there, or has failed: connect() was not waited for.
bool DeliveryFetch::greet(Attempt& attempt) {
  int errnum = 0;
  socklen_t size = sizeof errnum;
  ::getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &errnum, &size);
  if (errnum != 0) {
    last_refusal_ = std::strerror(errnum);
    return false;
  }
  attempt.connected = true;
  attempt.nonce = os::random_bytes(kDeliveryNonce);
  const std::string hello = std::string(kDeliveryMagic) + attempt.nonce + order_.id;
  // Nothing was sent before, so it fits into the socket's buffer.
  if (::send(attempt.fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(hello.size()) ||
      !loop_.change(attempt.fd.get(), EPOLLIN)) {
    last_refusal_ = "the connection broke";
    return false;
  }
  return true;
}

// Behind an address that many machines have (docker0) some other agent may answer, even one of
// another job. Only the right one can prove to have the key; it is answered with our own proof.
bool DeliveryFetch::hear_challenge(Attempt& attempt) {
  std::array<char, kDeliveryNonce + kDeliveryProof> chunk;
  const ssize_t got =
      ::recv(attempt.fd.get(), chunk.data(), chunk.size() - attempt.heard.size(), 0);
  if (got < 0 && (os::would_block(errno) || errno == EINTR)) return true;
  if (got <= 0) {
    last_refusal_ = got == 0 ? "it does not serve this" : std::strerror(errno);
    return false;
  }
  attempt.heard.append(chunk.data(), static_cast<std::size_t>(got));
  if (attempt.heard.size() < chunk.size()) return true;
  const DeliveryTalk talk{order_.id, attempt.nonce, attempt.heard.substr(0, kDeliveryNonce)};
  if (!equals_in_constant_time(attempt.heard.substr(kDeliveryNonce),
                               delivery_proof(order_.key, DeliveryRole::kServing, talk))) {
    last_refusal_ = "somebody else answers there";
    return false;
  }
  const std::string proof = delivery_proof(order_.key, DeliveryRole::kFetching, talk);
  if (::send(attempt.fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(proof.size())) {
    last_refusal_ = "the connection broke";
    return false;
  }
  heard_at_ = Clock::now();
  chosen_ = &attempt;
  opener_.emplace(delivery_seal_key(order_.key, talk), order_.size_bytes);
  // The other addresses lead to the same host, or to a wrong one.
  for (const auto& other : attempts_) {
    if (other.get() == chosen_ || !other->fd.valid()) continue;
    loop_.unwatch(other->fd.get());
    other->fd.reset();
  }
  return true;
}

// One read for each turn of the loop: the job's own streams come in between.
void DeliveryFetch::receive() {
  const auto chunk = os::thread_buffer<DeliveryFetch, kChunk>();
  const std::size_t wanted = going_ ? std::min(opener_->missing(), kChunk) : 1;
  const ssize_t got = ::recv(chosen_->fd.get(), chunk.data(), wanted, 0);
  if (got < 0 && (os::would_block(errno) || errno == EINTR)) return;
  if (got <= 0) {
    return refuse("it stopped after " + std::to_string(frames_.size()) + " of " +
                  std::to_string(order_.size_bytes) + " bytes");
  }
  heard_at_ = Clock::now();
  if (!going_) {
    going_ = chunk.data()[0] == kDeliveryGo;
    return going_ ? void() : try_later();
  }
  auto opened = opener_->feed({chunk.data(), static_cast<std::size_t>(got)}, frames_);
  if (!opened) return refuse(std::move(opened).error().message);
  if (opener_->missing() > 0) return;
  // The source has proved to be of the job. That does not make what it has the right thing.
  if (sha256_of(frames_) != order_.id) return refuse("what it sent has another SHA-256");
  finish(std::make_shared<const std::string>(std::move(frames_)));
}

// The source is of no use when none of its addresses is.
void DeliveryFetch::give_up(Attempt& attempt) {
  loop_.unwatch(attempt.fd.get());
  attempt.fd.reset();
  if (std::any_of(attempts_.begin(), attempts_.end(),
                  [](const auto& each) { return each->fd.valid(); })) {
    return;
  }
  refuse(last_refusal_);
}

// Longer each time, and no two hosts alike, or all that wait would ask in step.
void DeliveryFetch::try_later() {
  const auto now = Clock::now();
  if (patient_until_ == Clock::time_point{}) patient_until_ = now + kBusyPatience;
  if (now > patient_until_) return refuse("it serves others all the time");
  close_all();
  const auto spread = static_cast<unsigned char>(os::random_bytes(1)[0]);
  timer_ = loop_.call_after(pause_ + pause_ * spread / 256, [this] {
    timer_ = 0;
    try_source();
  });
  pause_ = std::min(2 * pause_, kLongestPause);
}

void DeliveryFetch::refuse(std::string why) {
  refusals_.push_back(std::move(why));
  try_next();
}

// Ends what takes too long: reaching the source, a silence, or all of it.
void DeliveryFetch::watch_time() {
  timer_ = loop_.call_after(kLook, [this] {
    timer_ = 0;
    const auto now = Clock::now();
    if (attempts_.empty()) return refuse(last_refusal_);
    if (chosen_ == nullptr && now - heard_at_ > kReachPatience) {
      return refuse("it cannot be reached in " + std::to_string(kReachPatience.count()) + " ms");
    }
    if (now - heard_at_ > kSilencePatience) {
      return refuse("it fell silent after " + std::to_string(frames_.size()) + " bytes");
    }
    if (now > deadline_) {
      return refuse("it is too slow: " + std::to_string(frames_.size()) + " of " +
                    std::to_string(order_.size_bytes) + " bytes in " +
                    std::to_string(order_.patience_ms) + " ms");
    }
    watch_time();
  });
}

// Everything is closed before the call, which may destroy this object.
void DeliveryFetch::finish(std::shared_ptr<const std::string> frames) {
  close_all();
  const auto on_done = std::exchange(on_done_, nullptr);
  if (on_done) on_done({std::move(frames), std::move(refusals_)});
}

}  // namespace hora::launcher
