// SPDX-License-Identifier: Apache-2.0
// All sockets are non-blocking; the functions that block do so in poll(), with a deadline.
#include "rendezvous/net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/time_until.h"

namespace hora::net {

namespace {

Status set_option(int fd, int level, int name, int value, std::string_view what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) == 0) return Ok{};
  return errno_error(errno, what);
}

Result<os::Fd> make_socket(const Endpoint& endpoint) {
  os::Fd fd(::socket(endpoint.address.v6 ? AF_INET6 : AF_INET,
                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd.valid()) return errno_error(errno, "making a socket");
  return fd;
}

Status wait_for(int fd, short events, Deadline deadline, std::string_view what) {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&entry, 1, os::milliseconds_until(deadline));
    if (count > 0) return Ok{};
    if (count < 0 && errno != EINTR) return errno_error(errno, what);
    // poll() may return earlier: its timeout is capped at an hour.
    if (count == 0 && Clock::now() >= deadline) {
      return make_error(ErrorCode::kTimedOut, std::string(what) + ": timed out");
    }
  }
}

std::string connecting_to(const Endpoint& where) {
  return "connecting to " + format_endpoint(where);
}

// These end one connection that waited to be accepted, and say nothing about the listener.
bool died_while_waiting(int errnum) {
  switch (errnum) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOPROTOOPT:
    case ENONET:
    case EOPNOTSUPP:
    case EPERM:
      return true;  // EPERM: a firewall rule
    default:
      return false;
  }
}

Result<std::optional<os::Fd>> accept_one(int listener, sockaddr_storage* peer) {
  for (;;) {
    socklen_t length = sizeof *peer;
    os::Fd fd(::accept4(listener, reinterpret_cast<sockaddr*>(peer), &length,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return std::optional<os::Fd>(std::move(fd));
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<os::Fd>();
    if (died_while_waiting(errno)) continue;
    const int why = errno;
    // Without a free descriptor the kernel does not even check for a waiting connection.
    const Status waits = wait_for(listener, POLLIN, Deadline::min(), "the next connection");
    if (!waits && waits.error().code == ErrorCode::kTimedOut) return std::optional<os::Fd>();
    return errno_error(why, "accepting a connection");
  }
}

}  // namespace

unsigned to_sockaddr(const Endpoint& endpoint, sockaddr_storage& out) {
  std::memset(&out, 0, sizeof out);
  if (endpoint.address.v6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(out);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(endpoint.port);
    std::memcpy(&in6.sin6_addr, endpoint.address.bytes.data(), 16);
    return sizeof in6;
  }
  auto& in = reinterpret_cast<sockaddr_in&>(out);
  in.sin_family = AF_INET;
  in.sin_port = htons(endpoint.port);
  std::memcpy(&in.sin_addr, endpoint.address.bytes.data(), 4);
  return sizeof in;
}

std::optional<Endpoint> from_sockaddr(const sockaddr_storage& address) {
  Endpoint endpoint;
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    std::memcpy(endpoint.address.bytes.data(), &in.sin_addr, 4);
    endpoint.port = ntohs(in.sin_port);
    return endpoint;
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
  endpoint.address.v6 = true;
  std::memcpy(endpoint.address.bytes.data(), &in6.sin6_addr, 16);
  // So that an IPv4 peer has one form, whichever kind of listener accepted it.
  endpoint.address = endpoint.address.unmapped();
  endpoint.port = ntohs(in6.sin6_port);
  return endpoint;
}

Result<os::Fd> listen_tcp(const Endpoint& where, int backlog) {
  const std::string what = "listening on " + format_endpoint(where);
  auto fd = make_socket(where);
  if (!fd) return std::move(fd).error().with_context(what);
  // A fixed port can be used again at once, though connections of the server before still stand in
  // TIME_WAIT.
  HORA_TRY(set_option(fd->get(), SOL_SOCKET, SO_REUSEADDR, 1, what));
  // The unspecified IPv6 address accepts IPv4 as well. A concrete one must not, or its port could
  // not be shared with an IPv4 listener.
  if (where.address.v6) {
    const int only = where.address.is_unspecified() ? 0 : 1;
    HORA_TRY(set_option(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, only, what));
  }
  // An accepted socket inherits it, so that accepting costs no further call.
  HORA_TRY(set_option(fd->get(), IPPROTO_TCP, TCP_NODELAY, 1, what));
  sockaddr_storage address;
  const unsigned length = to_sockaddr(where, address);
  if (::bind(fd->get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(fd->get(), backlog) != 0) {
    return errno_error(errno, what);
  }
  return fd;
}

// An IPv6 socket takes IPv4 connections as well; a kernel without IPv6 has none. If both fail, it
// is IPv4 that says why: without IPv6 the first reason would lead nowhere.
Result<os::Fd> listen_everywhere() {
  auto socket = listen_tcp({*parse_ip_address("::"), 0});
  return socket ? std::move(socket) : listen_tcp({*parse_ip_address("0.0.0.0"), 0});
}

Result<std::optional<os::Fd>> accept_stream(int listener) { return accept_one(listener, nullptr); }

Result<std::optional<Accepted>> accept_tcp(int listener) {
  for (;;) {
    sockaddr_storage address;
    auto fd = accept_one(listener, &address);
    if (!fd) return std::move(fd).error();
    if (!fd->has_value()) return std::optional<Accepted>();
    // Not an IP address: nothing that this process could answer to.
    const auto peer = from_sockaddr(address);
    if (peer) return std::optional<Accepted>(Accepted{*std::move(*fd), *peer});
  }
}

Result<os::Fd> begin_connect_tcp(const Endpoint& where, Deadline deadline) {
  const std::string what = connecting_to(where);
  auto fd = make_socket(where);
  if (!fd) return std::move(fd).error().with_context(what);
  HORA_TRY(set_option(fd->get(), IPPROTO_TCP, TCP_NODELAY, 1, what));
  sockaddr_storage address;
  const unsigned length = to_sockaddr(where, address);
  // EAGAIN: the kernel has no port or route to spare at this moment.
  const auto begin = [&] {
    const bool begun = ::connect(fd->get(), reinterpret_cast<sockaddr*>(&address), length) == 0 ||
                       errno == EINPROGRESS || errno == EINTR;
    return begun ? 0 : errno;
  };
  // After EINTR, too, the connection is under way: calling connect() again would be an error.
  const int refused = os::retry_while_refused(begin, deadline);
  if (refused != 0) return errno_error(refused, what);
  return fd;
}

Status end_connect_tcp(int fd, const Endpoint& where) {
  // A socket becomes writable when connecting has failed, too; only SO_ERROR shows which it is.
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return errno_error(error, connecting_to(where));
  return Ok{};
}

Result<os::Fd> connect_tcp(const Endpoint& where, Deadline deadline) {
  auto fd = begin_connect_tcp(where, deadline);
  if (!fd) return fd;
  HORA_TRY(wait_for(fd->get(), POLLOUT, deadline, connecting_to(where)));
  HORA_TRY(end_connect_tcp(fd->get(), where));
  return fd;
}

namespace {

template <typename Call>
Result<Endpoint> endpoint_of(int fd, Call call, std::string_view what) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (call(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return errno_error(errno, what);
  }
  auto endpoint = from_sockaddr(address);
  if (!endpoint) return make_error(ErrorCode::kFailed, std::string(what) + ": not an IP socket");
  return *endpoint;
}

}  // namespace

Result<Endpoint> local_endpoint(int fd) {
  return endpoint_of(fd, ::getsockname, "asking for a socket's own address");
}

Status wait_readable(int fd, Deadline deadline, std::string_view what) {
  return wait_for(fd, POLLIN, deadline, what);
}

Status wait_writable(int fd, Deadline deadline, std::string_view what) {
  return wait_for(fd, POLLOUT, deadline, what);
}

Status send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    // Without SIGPIPE: a library must not change what signals do in its program.
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HORA_TRY(wait_for(fd, POLLOUT, deadline, "sending"));
    } else if (errno != EINTR) {
      return errno_error(errno, "sending");
    }
  }
  return Ok{};
}

Result<std::size_t> receive_some(int fd, char* buffer, std::size_t size, Deadline deadline) {
  for (;;) {
    const ssize_t got = ::recv(fd, buffer, size, 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HORA_TRY(wait_for(fd, POLLIN, deadline, "receiving"));
    } else if (errno != EINTR) {
      return errno_error(errno, "receiving");
    }
  }
}

}  // namespace hora::net
