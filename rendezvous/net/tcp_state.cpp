// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/tcp_state.h"

#include <linux/tcp.h>  // that of the C library ends before tcpi_segs_out
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace hora::net {

bool is_lossy(std::uint32_t sent, std::uint32_t sent_again) {
  return sent_again > 0 && std::uint64_t{sent_again} * 100 >= sent;
}

bool has_outlived_losses(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  // Not tcpi_retransmits: the first thing that is sent again, as a probe, does not count there.
  const bool is_answered = info.tcpi_unacked == 0 && info.tcpi_probes == 0;
  return is_answered && is_lossy(info.tcpi_segs_out, info.tcpi_total_retrans);
}

// A file of its own: <linux/tcp.h>, which alone has this number, does not go with <netinet/tcp.h>.

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
