// SPDX-License-Identifier: Apache-2.0
// Datagrams between the watchdogs: rank 0 asks, the others answer. Each contains rank 0's secret,
// so that a forged one counts for nothing; losses do not matter, because the next question follows.
#include "collectives/control/heartbeat.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"

namespace hora::collectives {

namespace {

// How long a worker waits for the first question, which is usually on its way.
constexpr std::chrono::milliseconds kFirstQuestion{500};
// After this many questions the answers are read, before the socket's buffer overflows.
constexpr std::size_t kAskedAtOnce = 64;

}  // namespace

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
  // All use the secret of rank 0. The cards of the others have zeros in its place, which cost
  // nothing where all cards are sent to all ranks.
  made.card_ = (rank == 0 ? os::random_bytes(sizeof(Secret)) : std::string(sizeof(Secret), '\0')) +
               format_endpoint(*endpoint);
  return made;
}

Status Heartbeat::bootstrap(const std::vector<std::string>& cards, bool wait) {
  places_.resize(cards.size());
  heard_.resize(cards.size());
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const std::string& card = cards[rank];
    // A rank without heartbeats (its socket could not be opened).
    if (card.size() < sizeof(Secret)) continue;
    auto endpoint = parse_endpoint(card.substr(sizeof(Secret)));
    if (!endpoint) return std::move(endpoint).error();
    places_[rank] = *endpoint;
  }
  if (!places_.front()) return Ok{};
  cards.front().copy(secret_.data(), sizeof(Secret));
  if (rank_ == 0) {
    ask();
  } else if (wait &&
             net::wait_readable(fd(), Clock::now() + kFirstQuestion, "rank 0's first question")) {
    hear(Clock::now(), {});
  }
  return Ok{};
}

void Heartbeat::send(const Endpoint& to, const Wait& own) const {
  const auto since = std::min<std::int64_t>(own.since.count(), INT32_MAX);
  // A plain struct: all ranks run the same version (handshake).
  Sign sign{secret_, rank_, own.set, own.in_step ? 1 : 0, static_cast<std::int32_t>(since), {}};
  own.what.copy(sign.what.data(), sign.what.size() - 1);
  sockaddr_storage where{};
  const unsigned length = net::to_sockaddr(to, where);
  // A lost datagram does not matter: the next one follows.
  static_cast<void>(::sendto(socket_.get(), &sign, sizeof sign, MSG_DONTWAIT | MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&where), length));
}

void Heartbeat::ask() {
  if (rank_ != 0) return;
  for (std::size_t rank = 1; rank < places_.size(); ++rank) {
    if (places_[rank]) send(*places_[rank], {});
    if (rank % kAskedAtOnce == 0) hear(Clock::now(), {});
  }
}

// The answer goes to the address that rank 0 has announced, whoever sent the datagram.
void Heartbeat::hear(Clock::time_point now, const Wait& own) {
  while (true) {
    Sign sign{};
    const ssize_t count = ::recv(socket_.get(), &sign, sizeof sign, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof sign || sign.secret != secret_) {
      if (count < 0) return;  // an answer of the network to what was sent; more may come
      continue;
    }
    const auto from = static_cast<std::size_t>(sign.rank);
    // Workers hear only rank 0, and rank 0 only workers: an echo of the own datagram is not a sign.
    if (sign.rank < 0 || from >= heard_.size() || (sign.rank == 0) == (rank_ == 0)) continue;
    sign.what.back() = '\0';
    heard_[from] = Heard{
        now,
        {sign.set, sign.in_step != 0, std::chrono::milliseconds(sign.since_ms), sign.what.data()}};
    if (rank_ != 0 && places_.front()) send(*places_.front(), own);
  }
}

std::vector<int> Heartbeat::silent_since(Clock::time_point then) const {
  std::vector<int> silent;
  for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
    if (heard_[rank] && heard_[rank]->when < then) silent.push_back(static_cast<int>(rank));
  }
  return silent;
}

std::vector<Wait> Heartbeat::waits(Clock::time_point then) const {
  std::vector<Wait> all;
  for (const auto& each : heard_) {
    if (each && each->when >= then && each->wait.set != Wait::kNowhere) all.push_back(each->wait);
  }
  return all;
}

void Heartbeat::begin_anew(Clock::time_point now) {
  for (auto& each : heard_) {
    // A rank that has never answered stays that way.
    if (each) each->when = now;
  }
}

}  // namespace hora::collectives
