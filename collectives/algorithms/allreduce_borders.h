// SPDX-License-Identifier: Apache-2.0
// From which sizes on an allreduce takes another algorithm.  [pure]
//
// Doubling waits log2(n) times for the link and moves each byte log2(n) times; halving, among a
// power of two of ranks, waits twice as often and moves it 2 (n - 1) / n times; a ring moves it as
// often and waits 2 (n - 1) times, but moves one segment while it reduces another. So the farther
// the ranks are from each other, the longer doubling is the best, and then halving.
#pragma once

#include <chrono>
#include <cstdint>

namespace hora::collectives {

// Among a power of two of ranks, an allreduce up to this size, in bytes, reduces pairwise, so that
// leaders that exchange it without rank 0 (leader_plan.h) come to the same bits.
inline constexpr std::int64_t kPairwise = 128 * 1024;
// The same among other numbers of ranks.
inline constexpr std::int64_t kPairwiseLent = 64 * 1024;

// Bytes.
struct AllreduceBorders {
  std::int64_t halving_from = 0;  // doubling below; halving never, if this is ring_from
  std::int64_t ring_from = 0;
};

// `round_trip` between ranks, as all of them know it alike; 0: not known.
AllreduceBorders allreduce_borders(int ranks, std::chrono::microseconds round_trip);

}  // namespace hora::collectives
