// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/tcp/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/encoding.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"

namespace hora::collectives::tcp {

Listener::Listener(int epoll, std::uint64_t first, OnRank on_rank)
    : on_rank_(std::move(on_rank)),
      pending_(epoll, first, [this](PendingPeer& each) { receive(each); }) {}

Result<Contact> Listener::open(const IpAddress& address) {
  auto socket = net::listen_tcp(Endpoint{address, 0});
  if (!socket) return std::move(socket).error();
  auto where = net::local_endpoint(socket->get());
  if (!where) return std::move(where).error();
  socket_ = std::move(*socket);
  keep_alive(socket_.get());  // accepted sockets inherit it
  const std::string random = os::random_bytes(key_.size());
  std::copy(random.begin(), random.end(), key_.begin());
  return Contact{*where, key_};
}

// Reads what there is of a greeting, and not a byte of what follows it.
void Listener::receive(PendingPeer& pending) {
  Greeting& greeting = pending.greeting;
  while (pending.here < sizeof greeting) {
    const ssize_t count =
        ::recv(pending.socket.get(), reinterpret_cast<char*>(&greeting) + pending.here,
               sizeof greeting - pending.here, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) return pending.socket.reset();
    pending.here += static_cast<std::size_t>(count);
  }
  const auto view = [](const Key& each) { return std::string_view(each.data(), each.size()); };
  os::Fd socket = std::move(pending.socket);
  if (equals_in_constant_time(view(greeting.key), view(key_)) &&
      greeting.magic == Greeting::kMagic) {
    on_rank_(greeting.rank, std::move(socket));
  }
}

void keep_alive(int socket) {
  const int on = 1;
  const int idle_s = 60;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

}  // namespace hora::collectives::tcp
