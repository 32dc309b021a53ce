// SPDX-License-Identifier: Apache-2.0
// Finds out which addresses of a host the other hosts can reach. Each host listens and sends a
// random word to each client; reading the right word proves that the connection reached that host
// and not another one with the same private address.
#include "launcher/agent/prober.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

// Limits, so that a job with many hosts neither runs out of descriptors nor floods a switch.
constexpr std::size_t kOpenAtATime = 128;

}  // namespace

// --- answering -----------------------------------------------------------------------------------

Result<std::unique_ptr<ProbeListener>> ProbeListener::create(os::EventLoop& loop) {
  auto socket = net::listen_everywhere();
  if (!socket) return std::move(socket).error().with_context("listening for probes");
  std::unique_ptr<ProbeListener> listener(new ProbeListener(loop, std::move(*socket)));
  HORA_TRY(listener->acceptor_.start());
  return listener;
}

ProbeListener::ProbeListener(os::EventLoop& loop, os::Fd socket)
    : nonce_(os::random_token()),
      acceptor_(loop, std::move(socket), [this](const net::Accepted& accepted) {
        // A nonce always fits into an empty socket's buffer.
        (void)!::send(accepted.fd.get(), nonce_.data(), nonce_.size(), MSG_NOSIGNAL);
        ::shutdown(accepted.fd.get(), SHUT_WR);
      }) {}

// --- asking --------------------------------------------------------------------------------------

// One attempt per address. The answers keep the order of the targets.
Prober::Prober(os::EventLoop& loop, const Probe& probe, std::function<void(ProbeResult)> on_done)
    : loop_(loop), on_done_(std::move(on_done)), timeout_ms_(probe.timeout_ms) {
  for (const ProbeTarget& target : probe.targets) {
    for (const std::string& address : target.addresses) {
      auto attempt = std::make_unique<Attempt>();
      attempt->answer = result_.answers.size();
      attempt->port = target.port;
      attempt->nonce = target.nonce;
      ProbeAnswer answer;
      answer.host_index = target.host_index;
      answer.address = address;
      result_.answers.push_back(std::move(answer));
      waiting_.push_back(attempt.get());
      attempts_.push_back(std::move(attempt));
    }
  }
  left_ = attempts_.size();
}

Prober::~Prober() {
  loop_.cancel(timer_);
  for (const auto& attempt : attempts_) {
    if (attempt->socket.valid()) loop_.unwatch(attempt->socket.get());
  }
}

// The timeout covers all attempts together, also those that have not begun.
void Prober::start() {
  timer_ = loop_.call_after(std::chrono::milliseconds(timeout_ms_), [this] {
    timer_ = 0;
    waiting_.clear();
    for (const auto& attempt : attempts_) {
      if (!attempt->done) settle(*attempt, false, "no answer in time");
    }
    finish_if_done();
  });
  begin_waiting();
  finish_if_done();
}

void Prober::begin_waiting() {
  while (open_ < kOpenAtATime && !waiting_.empty()) {
    Attempt* attempt = waiting_.front();
    waiting_.pop_front();
    begin(*attempt);
  }
}

// settle() never calls on_done_, so the object stays valid inside the loops.
void Prober::begin(Attempt& attempt) {
  const auto address = parse_ip_address(result_.answers[attempt.answer].address);
  if (!address) return settle(attempt, false, address.error().message);
  sockaddr_storage storage{};
  const unsigned size =
      net::to_sockaddr({*address, static_cast<std::uint16_t>(attempt.port)}, storage);
  attempt.socket =
      os::Fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!attempt.socket.valid()) return settle(attempt, false, std::strerror(errno));
  ++open_;
  if (::connect(attempt.socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 &&
      errno != EINPROGRESS) {
    return settle(attempt, false, std::strerror(errno));
  }
  const auto watched = loop_.watch(attempt.socket.get(), EPOLLIN | EPOLLOUT,
                                   [this, &attempt](std::uint32_t) { on_event(attempt); });
  if (!watched) settle(attempt, false, watched.error().message);
}

void Prober::on_event(Attempt& attempt) {
  if (!attempt.connected) {
    int errnum = 0;
    socklen_t size = sizeof errnum;
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &errnum, &size);
    if (errnum != 0) {
      settle(attempt, false, std::strerror(errnum));
      begin_waiting();
      return finish_if_done();
    }
    attempt.connected = true;
    if (const auto local = net::local_endpoint(attempt.socket.get())) {
      result_.answers[attempt.answer].local_address = format_address(local->address);
    }
    // From here on only the nonce matters.
    (void)loop_.change(attempt.socket.get(), EPOLLIN);
  }
  std::array<char, 256> chunk;
  const ssize_t got = ::read(attempt.socket.get(), chunk.data(), chunk.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    attempt.received.append(chunk.data(), static_cast<std::size_t>(got));
    // The nonce may arrive in pieces.
    if (attempt.received.size() < attempt.nonce.size()) return;
  }
  // An address that is the same on every host (docker0) answers too, but for another host.
  const bool right = attempt.received == attempt.nonce && !attempt.nonce.empty();
  settle(attempt, right, right ? "" : "another host answers there");
  begin_waiting();
  finish_if_done();
}

void Prober::settle(Attempt& attempt, bool reached, std::string error) {
  attempt.done = true;
  if (attempt.socket.valid()) {
    loop_.unwatch(attempt.socket.get());
    attempt.socket.reset();
    --open_;
  }
  --left_;
  result_.answers[attempt.answer].reached = reached;
  result_.answers[attempt.answer].error = std::move(error);
}

void Prober::finish_if_done() {
  if (left_ > 0 || !on_done_) return;
  loop_.cancel(timer_);
  timer_ = 0;
  const auto on_done = std::exchange(on_done_, nullptr);
  on_done(std::move(result_));  // may destroy this
}

}  // namespace hora::launcher
