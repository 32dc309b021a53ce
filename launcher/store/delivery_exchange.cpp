// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/delivery_exchange.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "launcher/protocol/delivery.h"
#include "launcher/protocol/messages.h"
#include "launcher/store/file_unpacker.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

// Whatever goes wrong with a source has the same end: refuse() notes why and turns to the next one.
// Only a source that asks for it is tried again, since the launcher is one that always works.

namespace {

// A host that cannot be reached is found out soon, since the launcher can send as well.
constexpr std::chrono::milliseconds kReachTimeout{2'000};
constexpr std::chrono::milliseconds kSilenceTimeout{3'000};
// The source serves others in turns, and the launcher's sending would take longer.
constexpr std::chrono::seconds kBusyTimeout{10};
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
  busy_until_ = {};
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
  received_at_ = Clock::now();
  deadline_ = received_at_ + std::chrono::milliseconds(order_.timeout_ms);
  for (const std::string& address : source.addresses) begin(address, source.port);
  // Refused at once, or no source: the timer reports it, so that start() calls no handler.
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
  if (!(attempt.connected ? receive_challenge(attempt) : greet(attempt))) {
    give_up(attempt);
  }
}

// The connection is open, or has failed: connect() did not wait.
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

// At an address that many machines have (docker0), another agent may answer, even one of another
// job. Only the right one can prove to have the key; it gets our own proof in turn.
bool DeliveryFetch::receive_challenge(Attempt& attempt) {
  std::array<char, kDeliveryNonce + kDeliveryProof> chunk;
  const ssize_t got =
      ::recv(attempt.fd.get(), chunk.data(), chunk.size() - attempt.received.size(), 0);
  if (got < 0 && (os::would_block(errno) || errno == EINTR)) return true;
  if (got <= 0) {
    last_refusal_ = got == 0 ? "it does not serve this" : std::strerror(errno);
    return false;
  }
  attempt.received.append(chunk.data(), static_cast<std::size_t>(got));
  if (attempt.received.size() < chunk.size()) return true;
  const DeliveryTalk talk{order_.id, attempt.nonce, attempt.received.substr(0, kDeliveryNonce)};
  if (!equals_in_constant_time(attempt.received.substr(kDeliveryNonce),
                               delivery_proof(order_.key, DeliveryRole::kServing, talk))) {
    last_refusal_ = "another process answers there";
    return false;
  }
  const std::string proof = delivery_proof(order_.key, DeliveryRole::kFetching, talk);
  if (::send(attempt.fd.get(), proof.data(), proof.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(proof.size())) {
    last_refusal_ = "the connection broke";
    return false;
  }
  received_at_ = Clock::now();
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
  received_at_ = Clock::now();
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
  if (busy_until_ == Clock::time_point{}) busy_until_ = now + kBusyTimeout;
  if (now > busy_until_) return refuse("it serves others all the time");
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
    if (chosen_ == nullptr && now - received_at_ > kReachTimeout) {
      return refuse("it cannot be reached in " + std::to_string(kReachTimeout.count()) + " ms");
    }
    if (now - received_at_ > kSilenceTimeout) {
      return refuse("it fell silent after " + std::to_string(frames_.size()) + " bytes");
    }
    if (now > deadline_) {
      return refuse("it is too slow: " + std::to_string(frames_.size()) + " of " +
                    std::to_string(order_.size_bytes) + " bytes in " +
                    std::to_string(order_.timeout_ms) + " ms");
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

// A delivery is kept as the frames that it came in. So what is served are the bytes that the
// launcher would have sent, and the launcher can name them by one hash for all hosts.

namespace {

bool is_id(std::string_view text) { return text.size() == kDeliveryId && is_hash(text); }

}  // namespace

DeliveryExchange::DeliveryExchange(os::EventLoop& loop, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {}

Status DeliveryExchange::keep(KeepDelivery order) {
  if (keeping_) return make_error(ErrorCode::kUsage, "two orders to keep one delivery");
  if (!is_id(order.id)) return make_error(ErrorCode::kUsage, "an id that is no SHA-256");
  keeping_ = std::move(order);
  kept_.clear();
  return Ok{};
}

Status DeliveryExchange::fetch(FetchDelivery order) {
  if (!is_id(order.id)) return make_error(ErrorCode::kUsage, "an id that is no SHA-256");
  if (order.size_bytes == 0 || order.size_bytes > kMostKeptBytes) {
    return make_error(ErrorCode::kUsage,
                      "an order to fetch " + std::to_string(order.size_bytes) + " bytes");
  }
  const bool waits =
      std::any_of(to_fetch_.begin(), to_fetch_.end(),
                  [&order](const FetchDelivery& each) { return each.id == order.id; });
  if (waits || fetches_.count(order.id) > 0) {
    return make_error(ErrorCode::kUsage, "two orders to fetch one delivery");
  }
  to_fetch_.push_back(std::move(order));
  start_fetches();
  return Ok{};
}

// A folder of the user has thousands of parts, and hosts get the addresses of many at a time.
void DeliveryExchange::start_fetches() {
  while (!to_fetch_.empty() && fetches_.size() < kMostFetches) {
    FetchDelivery order = std::move(to_fetch_.front());
    to_fetch_.pop_front();
    const std::string id = order.id;
    auto fetch = std::make_unique<DeliveryFetch>(
        loop_, order,
        [this, id](DeliveryFetch::Outcome outcome) { on_fetched(id, std::move(outcome)); });
    DeliveryFetch& started = *fetch;
    fetches_.try_emplace(id, std::move(order), std::move(fetch));
    started.start();
  }
}

void DeliveryExchange::record(const Frame& frame) {
  if (!keeping_) return;
  append_frame(kept_, frame.type, frame.payload);
  kept_whole_ = frame.type == FrameType::kDataEnd;
}

// Only what has been unpacked is served: a host whose disk is full has failed, and passes nothing
// on.
void DeliveryExchange::proceed() {
  if (kept_whole_) {
    kept_whole_ = false;
    const KeepDelivery order = *std::exchange(keeping_, std::nullopt);
    serve(order.key, order.id,
          std::make_shared<const std::string>(std::exchange(kept_, std::string())),
          DeliveryReport{order.id, true, 0, {}});
  }
  unpack_fetched();
}

// Several deliveries may be fetched at a time, from different hosts. They are unpacked in the order
// in which they come.
void DeliveryExchange::on_fetched(const std::string& id, DeliveryFetch::Outcome outcome) {
  const auto found = fetches_.find(id);
  fetched_.push_back({std::move(found->second.first), std::move(outcome)});
  // It is still on the stack: destroyed by the next turn of the loop.
  loop_.post([finished = std::shared_ptr<DeliveryFetch>(std::move(found->second.second))] {});
  fetches_.erase(found);
  start_fetches();
  unpack_fetched();
}

// Two deliveries cannot be unpacked at a time: what was fetched waits for the end of the
// launcher's.
void DeliveryExchange::unpack_fetched() {
  while (!fetched_.empty() && handlers_.may_unpack()) {
    Fetched next = std::move(fetched_.front());
    fetched_.pop_front();
    DeliveryReport report{next.order.id, false, 0, std::move(next.outcome.refusals)};
    if (!next.outcome.frames) {
      handlers_.report(std::move(report));
      continue;
    }
    if (!handlers_.unpack(*next.outcome.frames)) return;
    report.here = true;
    serve(next.order.key, next.order.id, std::move(next.outcome.frames), std::move(report));
  }
}

// Without a socket this host serves no other; the launcher finds other sources.
void DeliveryExchange::serve(const std::string& key, const std::string& id,
                             std::shared_ptr<const std::string> frames, DeliveryReport report) {
  if (!server_) {
    auto server = DeliveryServer::create(loop_, key);
    if (server) server_ = std::move(*server);
  }
  if (server_) {
    server_->offer(id, std::move(frames));
    report.port = server_->port();
  }
  handlers_.report(std::move(report));
}

// The port closes with the server. A fetch that is under way ends, too: the agent leaves.
void DeliveryExchange::forget(const std::string& id) {
  if (!id.empty()) {
    // Hosts lack other deliveries.
    if (server_) server_->withdraw(id);
    return;
  }
  to_fetch_.clear();
  fetches_.clear();
  fetched_.clear();
  server_.reset();
}

}  // namespace hora::launcher
