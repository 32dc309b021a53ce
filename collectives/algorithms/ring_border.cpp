// SPDX-License-Identifier: Apache-2.0
// What the link and the kernels carry are guesses: a border that is off by a factor costs some ten
// percent of the operations near to it, and one that ranks do not agree on costs the job.
#include "collectives/algorithms/ring_border.h"

#include <algorithm>

namespace hora::collectives {

namespace {

// Ranks in one machine room. What is measured there says more about their schedulers than about
// the link, and jobs are to get the same bits again.
constexpr std::chrono::microseconds kNear{200};
constexpr std::int64_t kLeast = 32 * 1024;  // the border there
// From here on a message takes several windows of TCP, and so several round trips.
constexpr std::int64_t kMost = 2 * 1024 * 1024;

constexpr double kLinkBytesPerUs = 312;     // 2.5 Gbit/s
constexpr double kKernelBytesPerUs = 5000;  // doubling does not reduce while it moves

}  // namespace

std::int64_t ring_from(int ranks, std::chrono::microseconds round_trip) {
  if (ranks < 2 || round_trip < kNear) return kLeast;
  int doublings = 0;
  while ((1 << doublings) < ranks) ++doublings;
  const double hops = 2.0 * (ranks - 1);
  const double saved_us = (hops - doublings) * static_cast<double>(round_trip.count()) / 2;
  const double lost_us_per_byte =
      (doublings - hops / ranks) / kLinkBytesPerUs + doublings / kKernelBytesPerUs;
  const double bytes = std::min(saved_us / lost_us_per_byte, static_cast<double>(kMost));
  return std::max(static_cast<std::int64_t>(bytes), kLeast);
}

}  // namespace hora::collectives
