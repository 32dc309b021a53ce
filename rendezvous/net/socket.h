// TCP sockets: listening, accepting, connecting, moving bytes, each with a deadline.
// Every socket made here is close-on-exec, non-blocking and (TCP) has Nagle's delay off.
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

// As many waiting connections as the kernel will hold (net.core.somaxconn caps it silently).
inline constexpr int kLargeBacklog = 65535;

// Port 0 asks for a free port (see local_endpoint). "::" takes IPv4 as well.
Result<os::Fd> listen_tcp(const Endpoint& where, int backlog = kLargeBacklog);

struct Accepted {
  os::Fd fd;
  Endpoint peer;  // an IPv4 peer of a dual-stack socket is shown as IPv4
};
// A connection; nothing when none waits. A connection that died while it waited counts as none
// that was there: the next one is tried. EMFILE and ENFILE are kUnavailable.
Result<std::optional<Accepted>> accept_tcp(int listener);

// Connects, or says why not: refused, unreachable, kTimedOut.
Result<os::Fd> connect_tcp(const Endpoint& where, Deadline deadline);

Result<Endpoint> local_endpoint(int fd);

// Waits for a socket of a caller that has nothing else to do. `what` names what is waited for.
Status wait_readable(int fd, Deadline deadline, std::string_view what);
Status wait_writable(int fd, Deadline deadline, std::string_view what);

// All of `bytes`, or an error. Never raises SIGPIPE.
Status send_all(int fd, std::string_view bytes, Deadline deadline);
// At least one byte; 0 is the end of the stream.
Result<std::size_t> receive_some(int fd, char* buffer, std::size_t size, Deadline deadline);

// For code that needs the system's own form. The length is the return value's.
unsigned to_sockaddr(const Endpoint& endpoint, sockaddr_storage& out);
std::optional<Endpoint> from_sockaddr(const sockaddr_storage& address);

}  // namespace hora::net
