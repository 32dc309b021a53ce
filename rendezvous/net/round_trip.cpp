// SPDX-License-Identifier: Apache-2.0
// A file of its own: <linux/tcp.h>, which alone has this number, does not go with <netinet/tcp.h>.
#include "rendezvous/net/round_trip.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace hora::net {

std::optional<std::chrono::microseconds> least_round_trip(int fd) {
  // The kernel's word for "not measured".
  constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  // An older kernel fills in less.
  if (length < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt) return std::nullopt;
  if (info.tcpi_min_rtt == kUnknown) return std::nullopt;
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

}  // namespace hora::net
