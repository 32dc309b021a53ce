// SPDX-License-Identifier: Apache-2.0
// Bytes over a socket through a server's connection, of a client that may use the store and of an
// unauthenticated one. The first byte says in what pieces they arrive. Whatever they are, the
// connection ends, and everything is released.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "rendezvous/kv_connection.h"
#include "rendezvous/net/stream.h"

using namespace hora;
using namespace hora::rendezvous;
using Fate = KvConnection::Fate;

namespace {

void must(bool condition) {
  if (!condition) std::abort();
}

// Takes what the connection has sent, so that it is never blocked.
void drain(int fd) {
  std::array<char, 4096> buffer;
  while (::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT) > 0) continue;
}

Fate deliver(KvService& service, KvConnection& connection) {
  while (service.has_ready()) {
    for (const auto& ready : service.take_ready()) {
      must(ready.client == connection.id());
      if (connection.on_ready(ready.reply) == Fate::kClose) return Fate::kClose;
    }
  }
  return Fate::kKeep;
}

void talk(std::string_view stream, std::size_t step, const AccessPolicy& access) {
  KvService service(access, {.value_bytes = 10'000, .total_bytes = 20'000});
  KvServerOptions options;
  options.write_buffer_bytes = 2'000;
  KvConnectionContext context{service, options};
  context.scratch.resize(64 * 1024);
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) != 0) return;
  const os::Fd peer(ends[1]);
  {
    KvConnection connection(std::make_unique<net::Stream>(os::Fd(ends[0])), IpAddress{}, 1,
                            context);
    Fate fate = Fate::kKeep;
    for (std::size_t at = 0; at < stream.size() && fate == Fate::kKeep; at += step) {
      const std::string_view piece = stream.substr(at, step);
      if (::send(peer.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
      context.now += std::chrono::milliseconds(100);
      if ((connection.wanted_events() & EPOLLIN) != 0) fate = connection.on_events(EPOLLIN);
      drain(peer.get());
      service.expire(context.now);
      if (fate == Fate::kKeep) fate = deliver(service, connection);
      if (fate == Fate::kKeep && (connection.wanted_events() & EPOLLOUT) != 0) {
        fate = connection.on_events(EPOLLOUT);
      }
      drain(peer.get());
      must(service.stored_bytes() + context.receiving_bytes <= 20'000 + 64 * 1024);
    }
    // Every wait and every time-out comes to its end.
    for (int i = 0; i < 20 && fate == Fate::kKeep; ++i) {
      context.now += std::chrono::hours(1);
      service.expire(context.now);
      fate = deliver(service, connection);
      drain(peer.get());
      if (fate == Fate::kKeep) fate = connection.on_sweep();
      drain(peer.get());
    }
    must(fate == Fate::kClose);
  }
  must(context.receiving_bytes == 0);
  must(service.parked_count() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 32'768) return 0;
  const std::size_t step = 1 + data[0] * 8;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  talk(stream, step, {.token = {}, .allow = {{IpAddress{}, 0}}});
  talk(stream, step, {.token = "token", .allow = {}});
  return 0;
}
