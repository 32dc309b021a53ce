// SPDX-License-Identifier: Apache-2.0
// The plain stream and the two blocking helpers, which work for every stream: they wait for the
// socket whenever the stream says "later".
#include "rendezvous/net/stream.h"

#include <sys/socket.h>

#include <cerrno>

#include "rendezvous/net/socket.h"

namespace hora::net {

namespace {

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

Error failure(const Stream& stream, std::string_view what) {
  // A stream on top of the socket (TLS) uses EPROTO for its own failures, and has the better text.
  if (errno == EPROTO && !stream.trouble().empty()) {
    return make_error(ErrorCode::kFailed, std::string(stream.trouble()));
  }
  return errno_error(errno, what);
}

}  // namespace

// MSG_DONTWAIT: the socket of a caller may be in blocking mode.
ssize_t Stream::receive(char* buffer, std::size_t size) {
  return ::recv(fd_.get(), buffer, size, MSG_DONTWAIT);
}

ssize_t Stream::send(const iovec* parts, std::size_t count) {
  msghdr message{};
  // sendmsg() does not write through it.
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The peer reads the end of the stream after everything that was sent before.
bool Stream::shut_down_sending() { return ::shutdown(fd_.get(), SHUT_WR) == 0; }

Status send_all(Stream& stream, std::string_view bytes, Deadline deadline) {
  // send() may only have buffered the bytes: they are sent when nothing is left to push.
  while (!bytes.empty() || stream.must_push()) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    if (bytes.empty()) {
      if (!stream.push()) return failure(stream, "sending");
      if (!stream.must_push()) break;
    } else if (const ssize_t sent = stream.send(&part, 1); sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    } else if (errno == EINTR) {
      continue;
    } else if (!would_block()) {
      return failure(stream, "sending");
    }
    HORA_TRY(wait_writable(stream.fd(), deadline, "sending"));
  }
  return Ok{};
}

Result<std::size_t> receive_some(Stream& stream, char* buffer, std::size_t size,
                                 Deadline deadline) {
  for (;;) {
    const ssize_t got = stream.receive(buffer, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    // EINTR needs no wait: try again at once.
    if (would_block()) {
      HORA_TRY(wait_readable(stream.fd(), deadline, "receiving"));
    } else if (errno != EINTR) {
      return failure(stream, "receiving");
    }
  }
}

}  // namespace hora::net
