// SPDX-License-Identifier: Apache-2.0
// A small "happy eyeballs" (RFC 8305): the addresses are tried in order, a new one starts when the
// last one fails or stays silent for 250 ms, and the first connection wins.
#include "launcher/transports/tcp_connector.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "launcher/failures/failure_code.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/socket.h"

namespace hora::launcher {

namespace {

constexpr auto kNextAddressAfter = std::chrono::milliseconds(250);

}  // namespace

TcpConnector::TcpConnector(os::EventLoop& loop, BlockingCalls& resolver)
    : loop_(loop), resolver_(resolver) {}

// The resolver's answer may arrive after this object is gone, and *alive_ is false then.
TcpConnector::~TcpConnector() {
  *alive_ = false;
  clear();
}

void TcpConnector::clear() {
  next_.cancel();
  for (const Attempt& attempt : attempts_) loop_.unwatch(attempt.fd.get());
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
  next_.cancel();
  while (!waiting_.empty()) {
    const Endpoint endpoint = waiting_.back();
    waiting_.pop_back();
    auto fd = net::begin_connect_tcp(endpoint, Deadline::min());
    // An address that fails at once (no route, no IPv6) costs no wait: the loop takes the next one.
    if (!fd) {
      note_problem(endpoint, fd.error());
      continue;
    }
    const int number = fd->get();
    const Status watched =
        loop_.watch(number, EPOLLOUT, [this, number](std::uint32_t) { on_writable(number); });
    if (!watched) {
      note_problem(endpoint, watched.error());
      continue;
    }
    attempts_.push_back({endpoint, *std::move(fd)});
    if (!waiting_.empty()) next_.set(kNextAddressAfter, [this] { try_next(); });
    return;
  }
  // The last attempts may still be pending; only when none is left is the answer final.
  if (attempts_.empty()) {
    // "Refused" is claimed only if every address refused: it means that the host is up.
    settle({{}, {}, all_refused_ ? failure::kRefused : failure::kConnect, join(problems_, "; ")});
  }
}

void TcpConnector::on_writable(int fd) {
  const auto found = std::find_if(attempts_.begin(), attempts_.end(),
                                  [fd](const Attempt& a) { return a.fd.get() == fd; });
  if (found == attempts_.end()) return;
  loop_.unwatch(fd);
  Attempt attempt = std::move(*found);
  attempts_.erase(found);
  const Status connected = net::end_connect_tcp(fd, attempt.endpoint);
  if (connected) return settle({std::move(attempt.fd), attempt.endpoint, {}, {}});
  note_problem(attempt.endpoint, connected.error());
  try_next();
}

void TcpConnector::note_problem(const Endpoint& endpoint, const Error& error) {
  if (error.errnum != ECONNREFUSED) all_refused_ = false;
  problems_.push_back(errno_error(error.errnum, format_endpoint(endpoint)).message);
}

void TcpConnector::settle(Outcome outcome) {
  clear();
  // The receiver may destroy the connector.
  if (const Done done = std::exchange(done_, nullptr)) done(std::move(outcome));
}

std::string TcpConnector::addresses_tried() const {
  std::vector<std::string> silent;
  for (const Attempt& attempt : attempts_) silent.push_back(format_endpoint(attempt.endpoint));
  return join(silent, ", ");
}

}  // namespace hora::launcher
