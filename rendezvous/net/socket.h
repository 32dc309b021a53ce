// SPDX-License-Identifier: Apache-2.0
// TCP sockets: listening, accepting, connecting, moving bytes, each with a deadline.
// Every socket made here is close-on-exec and non-blocking and has Nagle's algorithm off.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

struct sockaddr_storage;

namespace hora::net {

// As many waiting connections as the kernel allows (net.core.somaxconn caps it silently).
inline constexpr int kLargeBacklog = 65535;

// Port 0 asks for a free port (see local_endpoint). "::" accepts IPv4 as well.
Result<os::Fd> listen_tcp(const Endpoint& where, int backlog = kLargeBacklog);
// On a free port of all addresses of this machine, IPv4 and, where there is any, IPv6.
Result<os::Fd> listen_everywhere();

// Accepts a connection, of any address family; nothing when none is waiting. It skips connections
// that died while they waited. EMFILE and ENFILE become kUnavailable.
Result<std::optional<os::Fd>> accept_stream(int listener);

struct Accepted {
  os::Fd fd;
  Endpoint peer;  // an IPv4 peer of a dual-stack socket appears as IPv4
};
Result<std::optional<Accepted>> accept_tcp(int listener);

// Connects or returns why not: refused, unreachable, kTimedOut.
Result<os::Fd> connect_tcp(const Endpoint& where, Deadline deadline);
// The same for callers that have other things to do meanwhile: once the socket is writable, or has
// failed, end_connect_tcp() says whether it is connected. Until the deadline, a kernel may have no
// port or route to spare.
Result<os::Fd> begin_connect_tcp(const Endpoint& where, Deadline deadline);
Status end_connect_tcp(int fd, const Endpoint& where);

Result<Endpoint> local_endpoint(int fd);

// Waits for a socket, for callers that have nothing else to do. `what` names the awaited thing.
Status wait_readable(int fd, Deadline deadline, std::string_view what);
Status wait_writable(int fd, Deadline deadline, std::string_view what);

// Sends all of `bytes` or returns an error. Never raises SIGPIPE.
Status send_all(int fd, std::string_view bytes, Deadline deadline);
// Receives at least one byte; 0 is the end of the stream.
Result<std::size_t> receive_some(int fd, char* buffer, std::size_t size, Deadline deadline);

// Converts to and from the system's own form. to_sockaddr() returns the length.
unsigned to_sockaddr(const Endpoint& endpoint, sockaddr_storage& out);
std::optional<Endpoint> from_sockaddr(const sockaddr_storage& address);

}  // namespace hora::net
