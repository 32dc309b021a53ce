// SPDX-License-Identifier: Apache-2.0
// What the link and the kernels carry are guesses: a border that is off by a factor costs some ten
// percent of the operations near to it, and one that ranks do not agree on costs the job.
#include "collectives/algorithms/allreduce_borders.h"

#include <algorithm>
#include <bit>

namespace hora::collectives {

namespace {

// Ranks in one machine room. What is measured there says more about their schedulers than about
// the link, and jobs are to get the same bits again.
constexpr std::chrono::microseconds kNear{200};
constexpr std::int64_t kLeast = 32 * 1024;  // where doubling ends there
// From here on a message takes several windows of TCP, and so several round trips.
constexpr std::int64_t kMost = 2 * 1024 * 1024;

constexpr double kLinkBytesPerUs = 312;     // 2.5 Gbit/s
constexpr double kKernelBytesPerUs = 5000;  // doubling does not reduce while it moves

}  // namespace

AllreduceBorders allreduce_borders(int ranks, std::chrono::microseconds round_trip) {
  if (ranks < 2) return {kLeast, kLeast};
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  const bool halves = power_of_two && ranks > 2;
  const std::int64_t least_ring = (power_of_two ? kPairwise : kPairwiseLent) + 1;
  if (round_trip < kNear) return {halves ? kLeast : least_ring, least_ring};
  const auto doublings = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  const double hops = 2.0 * (ranks - 1);
  // The size at which doubling takes as long as an algorithm that waits that often for the link.
  const auto doubling_until = [&](double waits, std::int64_t least) {
    const double saved_us = (waits - doublings) * static_cast<double>(round_trip.count()) / 2;
    const double lost_us_per_byte =
        (doublings - hops / ranks) / kLinkBytesPerUs + doublings / kKernelBytesPerUs;
    const double bytes = std::min(saved_us / lost_us_per_byte, static_cast<double>(kMost));
    return std::max(static_cast<std::int64_t>(bytes), least);
  };
  if (halves) return {doubling_until(2.0 * doublings, kLeast), kMost};
  const std::int64_t ring_from = doubling_until(hops, least_ring);
  return {ring_from, ring_from};
}

}  // namespace hora::collectives
