// SPDX-License-Identifier: Apache-2.0
// How the leaders of the hosts form a tree in a large job: hosts count from 0, and each has at most
// kTreeFan - 1 others directly below it for each power of kTreeFan. Host 0 is the root.  [pure]
#pragma once

namespace hora::collectives {

inline constexpr int kTreeFan = 32;

// The host above: the lowest digit to the base kTreeFan that is not 0 becomes 0.
constexpr int host_above(int host) {
  int unit = 1;
  while (host != 0 && host / unit % kTreeFan == 0) unit *= kTreeFan;
  return host - host / unit % kTreeFan * unit;
}

// Whether others go by the leader of this host.
constexpr bool has_hosts_below(int host, int hosts) {
  return host % kTreeFan == 0 && host + 1 < hosts;
}

}  // namespace hora::collectives
