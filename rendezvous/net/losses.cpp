// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/losses.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace hora::net {

bool has_outlived_losses(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool is_answered = info.tcpi_retransmits == 0 && info.tcpi_probes == 0;
  return info.tcpi_total_retrans > 0 && is_answered;
}

}  // namespace hora::net
