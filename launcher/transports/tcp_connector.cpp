// SPDX-License-Identifier: Apache-2.0
// A small "happy eyeballs" (RFC 8305): the addresses are tried in order, a new one starts when the
// last one fails or stays silent for 250 ms, and the first connection wins.
#include "launcher/transports/tcp_connector.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "launcher/failures/failure_code.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/socket.h"

namespace hora::launcher {

namespace {

constexpr auto kNextAddressAfter = std::chrono::milliseconds(250);

// TCP_NODELAY: heartbeats and orders are small and must not wait for an acknowledgement.
Result<os::Fd> begin_connect(const Endpoint& endpoint, bool& connected) {
  sockaddr_storage address{};
  const unsigned length = net::to_sockaddr(endpoint, address);
  os::Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error(errno, "making a socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  connected = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0;
  if (!connected && errno != EINPROGRESS) {
    return errno_error(errno, format_endpoint(endpoint));
  }
  return fd;
}

}  // namespace

TcpConnector::TcpConnector(os::EventLoop& loop, BlockingCalls& resolver)
    : loop_(loop), resolver_(resolver) {}

// The resolver's answer may arrive after this object is gone, and *alive_ is false then.
TcpConnector::~TcpConnector() {
  *alive_ = false;
  clear();
}

void TcpConnector::clear() {
  loop_.cancel(next_timer_);
  next_timer_ = 0;
  for (auto& attempt : attempts_) {
    if (attempt.fd.valid()) loop_.unwatch(attempt.fd.get());
  }
  attempts_.clear();
}

void TcpConnector::start(const std::string& host, int port, const std::string& family,
                         Resolved resolved, Done done) {
  resolved_ = std::move(resolved);
  done_ = std::move(done);
  family_ = family;
  resolving_ = true;
  // The resolver answers on one of its threads, so the answer is posted to the loop.
  resolver_.resolve(host, static_cast<std::uint16_t>(port),
                    [this, loop = &loop_, alive = alive_](auto endpoints) {
                      loop->post([this, alive, endpoints = std::move(endpoints)]() mutable {
                        if (*alive) on_resolved(std::move(endpoints));
                      });
                    });
}

void TcpConnector::on_resolved(Result<std::vector<Endpoint>> endpoints) {
  resolving_ = false;
  if (!endpoints) return settle({{}, {}, failure::kResolve, endpoints.error().message});
  waiting_ = *std::move(endpoints);
  if (!family_.empty()) {
    const bool v6 = family_ == "inet6";
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                  [v6](const Endpoint& e) { return e.address.v6 != v6; }),
                   waiting_.end());
  }
  if (waiting_.empty())
    return settle({{}, {}, failure::kResolve, "no address of family " + family_});
  if (resolved_) resolved_(format_endpoint(waiting_.front()));
  // try_next() takes addresses from the back.
  std::reverse(waiting_.begin(), waiting_.end());
  try_next();
}

void TcpConnector::try_next() {
  loop_.cancel(next_timer_);
  next_timer_ = 0;
  while (!waiting_.empty()) {
    const Endpoint endpoint = waiting_.back();
    waiting_.pop_back();
    bool connected = false;
    auto fd = begin_connect(endpoint, connected);
    // An address that fails at once (no route, no IPv6) costs no wait: the loop takes the next one.
    if (!fd) {
      all_refused_ = false;
      problems_.push_back(fd.error().message);
      continue;
    }
    if (connected) return settle({*std::move(fd), endpoint, {}, {}});
    const int number = fd->get();
    attempts_.push_back({endpoint, *std::move(fd)});
    if (!loop_.watch(number, EPOLLOUT, [this, number](std::uint32_t) { on_writable(number); })) {
      abandon(attempts_.back(), EMFILE);
      continue;
    }
    if (!waiting_.empty()) {
      next_timer_ = loop_.call_after(kNextAddressAfter, [this] {
        next_timer_ = 0;
        try_next();
      });
    }
    return;
  }
  // The last attempts may still be pending; only when none is left is the answer final.
  const bool all_failed = std::none_of(attempts_.begin(), attempts_.end(),
                                       [](const Attempt& a) { return a.fd.valid(); });
  if (all_failed) {
    // "Refused" is claimed only if every address refused: it means that the host is up.
    settle({{}, {}, all_refused_ ? failure::kRefused : failure::kConnect, join(problems_, "; ")});
  }
}

void TcpConnector::on_writable(int fd) {
  const auto found = std::find_if(attempts_.begin(), attempts_.end(),
                                  [fd](const Attempt& a) { return a.fd.get() == fd; });
  if (found == attempts_.end()) return;
  int error = 0;
  socklen_t length = sizeof error;
  // A socket becomes writable on failure as well; SO_ERROR distinguishes the two.
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) {
    abandon(*found, error);
    return try_next();
  }
  loop_.unwatch(fd);
  settle({std::move(found->fd), found->endpoint, {}, {}});
}

// The attempt stays in the list as a closed one, because the caller may hold a reference to it.
void TcpConnector::abandon(Attempt& attempt, int errnum) {
  if (errnum != ECONNREFUSED) all_refused_ = false;
  problems_.push_back(format_endpoint(attempt.endpoint) + ": " +
                      std::generic_category().message(errnum));
  loop_.unwatch(attempt.fd.get());
  attempt.fd.reset();
}

void TcpConnector::settle(Outcome outcome) {
  clear();
  // The receiver may destroy the connector.
  if (const Done done = std::exchange(done_, nullptr)) done(std::move(outcome));
}

std::string TcpConnector::addresses_tried() const {
  std::vector<std::string> silent;
  for (const auto& attempt : attempts_) {
    if (attempt.fd.valid()) silent.push_back(format_endpoint(attempt.endpoint));
  }
  return join(silent, ", ");
}

}  // namespace hora::launcher
