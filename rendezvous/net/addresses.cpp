// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/addresses.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "rendezvous/base/text.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"

namespace hora::net {

// getifaddrs() lists the addresses; ioctls give driver, speed and MTU. Every detail may be missing
// (in a container, without a driver), and is 0 or empty then.

namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

// The name is cut to what the kernel accepts, and terminated.
ifreq request_for(const char* name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return request;
}

// Needs no privilege. An interface without a driver (lo, a tunnel) fails and has an empty one.
std::string driver_of(int socket, const char* name) {
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request = request_for(name);
  // The kernel fills the structure that this points to.
  request.ifr_data = reinterpret_cast<char*>(&info);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return {};
  return std::string(info.driver, ::strnlen(info.driver, sizeof info.driver));
}

// The older of two ethtool interfaces, which every kernel supports.
int speed_of(int socket, const char* name) {
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  ifreq request = request_for(name);
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return 0;
  const __u32 speed = ethtool_cmd_speed(&settings);
  // The kernel reports an unknown speed as 0, 0xffff or 0xffffffff, depending on the driver.
  const bool known = speed != 0 && speed != 0xffff && speed <= 10'000'000;
  return known ? static_cast<int>(speed) : 0;
}

int mtu_of(int socket, const char* name) {
  ifreq request = request_for(name);
  return ::ioctl(socket, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

int prefix_of(const sockaddr* mask) {
  // A point-to-point interface may have no mask.
  if (mask == nullptr) return 0;
  sockaddr_storage storage{};
  const bool v6 = mask->sa_family == AF_INET6;
  std::memcpy(&storage, mask, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  const auto endpoint = from_sockaddr(storage);
  if (!endpoint) return 0;
  // A netmask has contiguous bits, so their number is the prefix's length.
  int bits = 0;
  for (const std::uint8_t byte : endpoint->address.bytes) bits += std::popcount(byte);
  return bits;
}

}  // namespace

bool is_bridge_name(std::string_view interface_name, std::string_view driver) {
  // The driver is certain; a bridge can have any name.
  if (driver == "bridge" || driver == "openvswitch") return true;
  // For drivers that do not answer: the names that container runtimes give their bridges.
  constexpr std::array<std::string_view, 9> kPrefixes = {
      "docker", "br-", "virbr", "lxcbr", "lxdbr", "cni", "podman", "cbr", "incusbr"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) {
    return interface_name.substr(0, prefix.size()) == prefix;
  });
}

namespace {

// What is the same for all of its addresses.
Interface ask_driver(int socket, const char* name) {
  Interface interface;
  interface.name = name;
  interface.virtual_bridge = is_bridge_name(name, driver_of(socket, name));
  interface.speed_mbps = speed_of(socket, name);
  interface.mtu = mtu_of(socket, name);
  return interface;
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return errno_error(errno, "listing the network interfaces");
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(head);
  // Any socket serves for the ioctls below.
  const os::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_error(errno, "listing the network interfaces");

  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    // An interface without an address still has an entry.
    if (entry->ifa_addr == nullptr) continue;
    const auto family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ifa_addr,
                family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    const auto endpoint = from_sockaddr(storage);
    if (!endpoint) continue;
    const auto known =
        std::find_if(interfaces.begin(), interfaces.end(),
                     [entry](const Interface& other) { return other.name == entry->ifa_name; });
    Interface interface =
        known == interfaces.end() ? ask_driver(socket.get(), entry->ifa_name) : *known;
    interface.address = endpoint->address;
    interface.prefix_length = prefix_of(entry->ifa_netmask);
    const unsigned flags = entry->ifa_flags;
    // UP is the administrator's wish, RUNNING the carrier.
    interface.up = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
    interface.loopback = (flags & IFF_LOOPBACK) != 0;
    interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

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
    // An entry is shorter than sockaddr_storage: copy only its bytes.
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
