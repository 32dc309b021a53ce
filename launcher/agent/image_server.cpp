// SPDX-License-Identifier: Apache-2.0
// Strangers can connect to the port, so all that they cost is bounded: their number, what is read
// from them, and their time. Nothing of the program is copied: the kernel sends from the file.
#include "launcher/agent/image_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "rendezvous/base/hex.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/would_block.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kRequest = "HORA-IMAGE-1 ";
constexpr std::size_t kMostRequest = 128;
constexpr std::size_t kMostStrangers = 64;
constexpr std::size_t kMostAdmitted = 16;
constexpr int kAcceptsPerTurn = 16;
constexpr std::size_t kSentPerTurn = 256 * 1024;
// A host asks once it is connected, and a shell may take its time to say a line.
constexpr std::chrono::milliseconds kLook{500};
constexpr std::chrono::seconds kRequestPatience{3};
constexpr std::chrono::seconds kReadPatience{5};  // of a peer that takes no bytes

}  // namespace

Result<std::unique_ptr<ImageServer>> ImageServer::create(os::EventLoop& loop,
                                                         const std::string& token,
                                                         const std::string& program) {
  std::string request = std::string(kRequest) + token + '\n';
  if (token.empty() || request.size() > kMostRequest) {
    return make_error(ErrorCode::kUsage, "a token that no launcher sends");
  }
  os::Fd file(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + program);
  auto socket = net::listen_everywhere();
  if (!socket) return std::move(socket).error().with_context("listening for other hosts");
  const auto endpoint = net::local_endpoint(socket->get());
  if (!endpoint) return endpoint.error();
  std::unique_ptr<ImageServer> server(new ImageServer(loop, std::move(*socket), endpoint->port,
                                                      std::move(file), std::move(request)));
  HORA_TRY(loop.watch(
      server->socket_.get(), EPOLLIN, [raw = server.get()](std::uint32_t) { raw->accept_some(); },
      os::EventLoop::Priority::kBackground));
  return server;
}

ImageServer::ImageServer(os::EventLoop& loop, os::Fd socket, int port, os::Fd program,
                         std::string request)
    : loop_(loop),
      socket_(std::move(socket)),
      port_(port),
      program_(std::move(program)),
      request_(std::move(request)) {
  timer_ = loop_.call_after(kLook, [this] { look_at_deadlines(); });
}

// Peers that are being served find the end of the stream, and turn to another source.
ImageServer::~ImageServer() {
  loop_.cancel(timer_);
  loop_.unwatch(socket_.get());
  for (const auto& [number, peer] : peers_) loop_.unwatch(peer.fd.get());
}

// Bounded in each turn: a flood of connections must not keep the launcher's stream waiting.
void ImageServer::accept_some() {
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

// A newcomer may be of the job, so the oldest of those that have said nothing yet gives way to it.
void ImageServer::admit(os::Fd fd) {
  if (peers_.size() - admitted_ >= kMostStrangers) {
    const auto stranger = std::find_if(peers_.begin(), peers_.end(),
                                       [](const auto& each) { return !each.second.admitted; });
    drop(stranger->first);
  }
  const Number number = next_++;
  Peer& peer = peers_[number];
  peer.fd = std::move(fd);
  peer.deadline = Clock::now() + kRequestPatience;
  const auto watched = loop_.watch(
      peer.fd.get(), EPOLLIN, [this, number](std::uint32_t) { on_event(number); },
      os::EventLoop::Priority::kBackground);
  if (!watched) peers_.erase(number);
}

// A peer may be gone already: another one's turn may have made room for a newcomer.
void ImageServer::on_event(Number number) {
  const auto found = peers_.find(number);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  const bool stays = peer.admitted ? send_some(peer) : listen_to(peer);
  if (!stays) drop(number);
}

// Never reads more than the line has: whatever a stranger sends beyond it stays in the kernel, and
// goes with the socket. A wrong line is known by its length alone, and answered by the end.
bool ImageServer::listen_to(Peer& peer) {
  std::array<char, kMostRequest> chunk;
  const std::size_t wanted = request_.size() - peer.heard.size();
  const ssize_t got = ::recv(peer.fd.get(), chunk.data(), wanted, 0);
  if (got < 0) return os::would_block(errno) || errno == EINTR;
  if (got == 0) return false;
  peer.heard.append(chunk.data(), static_cast<std::size_t>(got));
  if (peer.heard.size() < request_.size()) return true;
  if (!equals_in_constant_time(peer.heard, request_) || admitted_ >= kMostAdmitted) return false;
  peer.admitted = true;
  ++admitted_;
  peer.deadline = Clock::now() + kReadPatience;
  return loop_.change(peer.fd.get(), EPOLLOUT).has_value();
}

// A piece for each turn of the loop, so that several peers share the link evenly and the launcher's
// stream is not kept waiting.
bool ImageServer::send_some(Peer& peer) {
  const ssize_t sent = ::sendfile(peer.fd.get(), program_.get(), &peer.sent, kSentPerTurn);
  if (sent < 0) return os::would_block(errno) || errno == EINTR;
  peer.deadline = Clock::now() + kReadPatience;
  return sent > 0;  // else it has everything
}

void ImageServer::drop(Number number) {
  const auto found = peers_.find(number);
  loop_.unwatch(found->second.fd.get());
  if (found->second.admitted) --admitted_;
  peers_.erase(found);
}

// One timer for all: deadlines are there to get rid of peers, and need not be exact.
void ImageServer::look_at_deadlines() {
  const auto now = Clock::now();
  for (auto each = peers_.begin(); each != peers_.end();) {
    const auto number = (each++)->first;
    if (peers_.at(number).deadline < now) drop(number);
  }
  (void)loop_.change(socket_.get(), EPOLLIN);
  timer_ = loop_.call_after(kLook, [this] { look_at_deadlines(); });
}

}  // namespace hora::launcher
