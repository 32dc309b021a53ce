// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/resolve.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "rendezvous/base/text.h"
#include "rendezvous/net/socket.h"

namespace hora::net {

namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

Error resolver_error(int code, const std::string& host) {
  const std::string what = "resolving " + quote(host);
  if (code == EAI_SYSTEM) return errno_error(errno, what);
  // Only these two may go away by themselves; an unknown name will not.
  const bool later = code == EAI_AGAIN || code == EAI_MEMORY;
  return make_error(later ? ErrorCode::kUnavailable : ErrorCode::kNotFound,
                    what + ": " + ::gai_strerror(code));
}

}  // namespace

Result<std::vector<Endpoint>> resolve_host(const std::string& host, std::uint16_t port) {
  // As in a URL: "[::1]".
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  // Without the resolver, which a static program may not be able to load.
  if (auto numeric = parse_ip_address(name)) return std::vector<Endpoint>{{*numeric, port}};

  addrinfo hints{};
  // IPv4 and IPv6, in the order that the system's policy prefers.
  hints.ai_family = AF_UNSPEC;
  // Otherwise each address comes once per socket type.
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (code != 0) return resolver_error(code, host);
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);

  std::vector<Endpoint> endpoints;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    sockaddr_storage address{};
    // An entry is shorter than sockaddr_storage: copy what is there.
    std::memcpy(&address, entry->ai_addr, std::min<std::size_t>(entry->ai_addrlen, sizeof address));
    auto endpoint = from_sockaddr(address);
    if (!endpoint) continue;
    endpoint->port = port;
    if (std::find(endpoints.begin(), endpoints.end(), *endpoint) == endpoints.end()) {
      endpoints.push_back(*endpoint);
    }
  }
  if (endpoints.empty()) {
    return make_error(ErrorCode::kNotFound, "resolving " + quote(host) + ": no address");
  }
  return endpoints;
}

Result<os::Fd> connect_host(const std::string& host, std::uint16_t port, Deadline deadline) {
  auto endpoints = resolve_host(host, port);
  if (!endpoints) return std::move(endpoints).error();
  Error last = make_error(ErrorCode::kNotFound, "no address");
  for (const Endpoint& endpoint : *endpoints) {
    // The attempts share one deadline. The last error is the one that the caller gets.
    auto fd = connect_tcp(endpoint, deadline);
    if (fd) return fd;
    last = std::move(fd).error();
  }
  return last;
}

}  // namespace hora::net
