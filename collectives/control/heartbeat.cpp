// SPDX-License-Identifier: Apache-2.0
// Datagrams between the watchdogs. Each contains rank 0's secret, so that a forged one counts for
// nothing; losses do not matter, because the next question follows.
#include "collectives/control/heartbeat.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"

namespace hora::collectives {

namespace {

// How long a worker waits for the first question, which is usually on its way.
constexpr std::chrono::milliseconds kFirstQuestion{500};
// After this many questions the answers are read, before the socket's buffer overflows.
constexpr std::size_t kAskedAtOnce = 64;
// A leader that has not answered this many questions is not relied upon at the next one.
constexpr int kUnanswered = 2;

std::int32_t in_milliseconds(std::chrono::milliseconds time) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(time.count(), 0, INT32_MAX));
}

}  // namespace

std::vector<int> find_askers(const std::vector<std::int32_t>& hosts) {
  std::map<std::int32_t, int> leaders;
  std::vector<int> askers;
  for (const std::int32_t host : hosts) {
    const int rank = static_cast<int>(askers.size());
    const int leader = leaders.emplace(host, rank).first->second;
    askers.push_back(leader == rank ? 0 : leader);
  }
  return askers;
}

Result<Heartbeat> Heartbeat::open(const std::string& address, int rank) {
  auto ip = parse_ip_address(address);
  if (!ip) return std::move(ip).error();
  sockaddr_storage where{};
  const unsigned length = net::to_sockaddr(Endpoint{*ip, 0}, where);
  Heartbeat made;
  made.rank_ = rank;
  made.socket_ = os::Fd(::socket(where.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.socket_.valid() ||
      ::bind(made.socket_.get(), reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    return errno_error(errno, "opening a heartbeat socket on " + address);
  }
  auto endpoint = net::local_endpoint(made.socket_.get());
  if (!endpoint) return std::move(endpoint).error();
  // All use the secret of rank 0. The cards of the others have zeros instead, which cost nothing
  // where all cards are sent to all ranks.
  made.card_ = (rank == 0 ? os::random_bytes(sizeof(Secret)) : std::string(sizeof(Secret), '\0')) +
               format_endpoint(*endpoint);
  return made;
}

Status Heartbeat::bootstrap(const std::vector<std::string>& cards, bool wait,
                            std::vector<int> askers) {
  places_.resize(cards.size());
  received_.resize(cards.size());
  unanswered_.resize(cards.size());
  askers_ = std::move(askers);
  askers_.resize(cards.size(), 0);
  // A leader passes on what it has received since the last question; when it has gone silent, that
  // is noticed after kUnanswered more.
  if (std::any_of(askers_.begin(), askers_.end(), [](int asker) { return asker != 0; })) {
    delay_ = 2 + kUnanswered;
  }
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const std::string& card = cards[rank];
    // A rank without heartbeats (its socket could not be opened).
    if (card.size() < sizeof(Secret)) continue;
    auto endpoint = parse_endpoint(card.substr(sizeof(Secret)));
    if (!endpoint) return std::move(endpoint).error();
    places_[rank] = *endpoint;
  }
  if (!places_.front()) {
    socket_.reset();  // without a secret any program could send them
    return Ok{};
  }
  cards.front().copy(secret_.data(), sizeof(Secret));
  ask(Clock::now());
  const Deadline deadline = Clock::now() + kFirstQuestion;
  while (rank_ != 0 && wait && !was_asked_ &&
         net::wait_readable(fd(), deadline, "the first question")) {
    receive(Clock::now(), {});
  }
  return Ok{};
}

bool Heartbeat::asks(std::size_t rank) const {
  if (!places_[rank] || static_cast<int>(rank) == rank_) return false;
  const auto asker = static_cast<std::size_t>(askers_[rank]);
  if (askers_[rank] == rank_) return true;
  return rank_ == 0 && (!places_[asker] || unanswered_[asker] > kUnanswered);
}

// Leaders before those of their hosts, so what is known of a leader includes this question.
void Heartbeat::ask(Clock::time_point now) {
  std::optional<Sign> of_rank_0 = known_of(0, now);
  if (rank_ == 0) of_rank_0 = Sign{0, Wait::kNowhere, 0, 0, 0, {}};
  std::size_t asked = 0;
  for (std::size_t rank = 1; rank < places_.size(); ++rank) {
    if (!asks(rank)) continue;
    send(rank, {of_rank_0 ? &*of_rank_0 : nullptr, of_rank_0 ? 1U : 0U});
    ++unanswered_[rank];
    if (rank_ == 0 && ++asked % kAskedAtOnce == 0) receive(now, {});
  }
}

void Heartbeat::receive(Clock::time_point now, const Wait& own) {
  while (true) {
    Message message{};
    const ssize_t count = ::recv(socket_.get(), &message, sizeof message, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // an answer of the network to what was sent; more may come
    const auto bytes = static_cast<std::size_t>(count);
    const auto signs = static_cast<std::size_t>(message.count);
    if (bytes < offsetof(Message, signs) || message.secret != secret_ ||
        signs > message.signs.size() || bytes != offsetof(Message, signs) + signs * sizeof(Sign)) {
      continue;
    }
    receive(now, message, own);
  }
}

void Heartbeat::receive(Clock::time_point now, const Message& message, const Wait& own) {
  const auto from = static_cast<std::size_t>(message.from);
  // An echo of the own datagram is not a sign.
  if (from >= received_.size() || message.from == rank_) return;
  const std::span signs(message.signs.data(), static_cast<std::size_t>(message.count));
  if (rank_ == 0 || askers_[from] == rank_) {
    unanswered_[from] = 0;
    for (const Sign& sign : signs) note(now, sign);
  } else if (from == 0 || message.from == askers_[static_cast<std::size_t>(rank_)]) {
    was_asked_ = true;
    // A rank that is asked learns only this.
    if (!signs.empty() && signs.front().rank == 0) note(now, signs.front());
    Sign mine{rank_, own.set, own.in_step ? 1 : 0, in_milliseconds(own.since), 0, {}};
    own.what.copy(mine.what.data(), mine.what.size() - 1);
    std::vector<Sign> known{mine};
    for (std::size_t rank = 1; from == 0 && rank < received_.size(); ++rank) {
      if (askers_[rank] != rank_) continue;
      if (const auto sign = known_of(rank, now)) known.push_back(*sign);
    }
    // To the address that it has announced, not to the sender of the datagram.
    send(from, known);
  }
}

void Heartbeat::note(Clock::time_point now, const Sign& sign) {
  const auto of = static_cast<std::size_t>(sign.rank);
  if (of >= received_.size() || sign.rank == rank_ || sign.age_ms < 0) return;
  const auto when = now - std::chrono::milliseconds(sign.age_ms);
  std::optional<Received>& received = received_[of];
  if (received && received->when > when) return;  // it comes the longer way
  const std::string_view what(sign.what.data(), sign.what.size());
  received = Received{when,
                      {sign.set, sign.in_step != 0, std::chrono::milliseconds(sign.since_ms),
                       std::string(what.substr(0, what.find('\0')))}};
}

std::optional<Heartbeat::Sign> Heartbeat::known_of(std::size_t rank, Clock::time_point now) const {
  const std::optional<Received>& received = received_[rank];
  if (!received) return std::nullopt;
  const Wait& wait = received->wait;
  const auto age = std::chrono::floor<std::chrono::milliseconds>(now - received->when);
  Sign sign{static_cast<std::int32_t>(rank),
            wait.set,
            wait.in_step ? 1 : 0,
            in_milliseconds(wait.since),
            in_milliseconds(age),
            {}};
  wait.what.copy(sign.what.data(), sign.what.size() - 1);
  return sign;
}

void Heartbeat::send(std::size_t to, std::span<const Sign> signs) const {
  if (!places_[to]) return;
  sockaddr_storage where{};
  const unsigned length = net::to_sockaddr(*places_[to], where);
  do {
    Message message{secret_, rank_, 0, {}};
    const std::size_t count = std::min(signs.size(), message.signs.size());
    std::copy_n(signs.begin(), count, message.signs.begin());
    message.count = static_cast<std::int32_t>(count);
    signs = signs.subspan(count);
    // A lost datagram does not matter: the next one follows.
    static_cast<void>(
        ::sendto(socket_.get(), &message, offsetof(Message, signs) + count * sizeof(Sign),
                 MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&where), length));
  } while (!signs.empty());
}

std::vector<int> Heartbeat::silent_since(Clock::time_point then) const {
  std::vector<int> silent;
  const std::size_t end = rank_ == 0 ? received_.size() : 1;
  for (std::size_t rank = 0; rank < end; ++rank) {
    if (received_[rank] && received_[rank]->when < then) silent.push_back(static_cast<int>(rank));
  }
  return silent;
}

std::vector<Wait> Heartbeat::waits(Clock::time_point then) const {
  std::vector<Wait> all;
  for (const auto& each : received_) {
    if (each && each->when >= then && each->wait.set != Wait::kNowhere) all.push_back(each->wait);
  }
  return all;
}

// Only for the ranks that are judged here: a leader reports what it has received from its ranks.
void Heartbeat::restart(Clock::time_point now) {
  const std::size_t end = rank_ == 0 ? received_.size() : 1;
  for (std::size_t rank = 0; rank < end; ++rank) {
    // A rank that has never answered stays that way.
    if (received_[rank]) received_[rank]->when = now;
  }
}

}  // namespace hora::collectives
