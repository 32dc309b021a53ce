// SPDX-License-Identifier: Apache-2.0
// The algorithms of allreduce, and the sizes at which one takes over from another.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "collectives/algorithms/messages.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

// The operation of an algorithm on two operands.

struct Reduction {
  Reduction(hora_dtype dtype, hora_reduce_op op)
      : function(reduce_function(dtype, op)),
        element_bytes(static_cast<std::int64_t>(dtype_bytes(dtype))) {}

  ReduceFunction function;
  std::int64_t element_bytes;
};

// Where the ranks' parts lie in one stretch of memory.

// Where each rank's part begins, in bytes, and after them the end of the last.
using Offsets = std::vector<std::int64_t>;

inline Offsets offsets_of(const std::int64_t* sizes, int count, std::int64_t unit) {
  Offsets offsets(static_cast<std::size_t>(count) + 1, 0);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    offsets[at + 1] = offsets[at] + sizes[i] * unit;
  }
  return offsets;
}

// Elements, or bytes.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// The lower half has the odd element.
inline Stretch half_of(const Stretch& whole, bool upper) {
  const std::int64_t lower = whole.count - whole.count / 2;
  return upper ? Stretch{whole.begin + lower, whole.count / 2} : Stretch{whole.begin, lower};
}

// A stretch of bytes that travels as one message.
struct RingSegment {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// A part in segments. `part` counts on: that of rank 0 follows the last one, and the other way
// round.
inline std::vector<RingSegment> segments_of(const Offsets& offsets, int part, std::int64_t most) {
  const int count = static_cast<int>(offsets.size()) - 1;
  const auto at = static_cast<std::size_t>((part % count + count) % count);
  std::vector<RingSegment> segments;
  for (std::int64_t begin = offsets[at]; begin < offsets[at + 1]; begin += most) {
    segments.push_back({begin, std::min(most, offsets[at + 1] - begin)});
  }
  return segments;
}

// Recursive halving, and doubling back: with every exchange a rank is left with half as many
// elements to reduce, and then the shares go back the same way. As many bytes as in a ring, in
// 2 log2(n) messages, among a power of two of ranks.
// R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations in
// MPICH (2005), section 4.5. The nearest ranks exchange first here, so that every element is
// reduced in the order of recursive doubling, to the same bits.

// In place.
bool halving_allreduce(Messages& messages, char* data, std::int64_t count,
                       const Reduction& reduction, ErrorText& error);

// Recursive doubling: with every exchange of the whole data a rank covers twice as many ranks. Few
// messages, but each byte moves once for every doubling.

// In place.
bool doubling_allreduce(Messages& messages, char* data, std::int64_t count,
                        const Reduction& reduction, ErrorText& error);

// Every rank passes a part of the data to its right neighbour, which adds its own and passes it on;
// after size - 1 hops part i is complete on rank i, and after size - 1 more all ranks have it. Each
// byte moves twice, however many ranks there are. Parts travel in segments of `segment_bytes`, so
// that moving one overlaps with reducing the one before; a segment moves on as soon as it has
// arrived.

// All of these work in place. `offsets` of whole elements.
bool ring_allreduce(Messages& messages, char* data, const Offsets& offsets,
                    const Reduction& reduction, std::int64_t segment_bytes, ErrorText& error);
// On return this rank's part is reduced, and the rest is undefined.
bool ring_reduce_scatter(Messages& messages, char* data, const Offsets& offsets,
                         const Reduction& reduction, std::int64_t segment_bytes, ErrorText& error);
// This rank's part is in position already.
bool ring_allgather(Messages& messages, char* data, const Offsets& offsets,
                    std::int64_t segment_bytes, ErrorText& error);

// The sizes from which on an allreduce takes another algorithm.
// Doubling waits log2(n) times for the link and moves each byte log2(n) times; halving, among a
// power of two of ranks, waits twice as often and moves it 2 (n - 1) / n times; a ring moves it as
// often and waits 2 (n - 1) times, but moves one segment while it reduces another. So the farther
// the ranks are from each other, the longer doubling is the best, and then halving.

// Among a power of two of ranks, an allreduce up to this size, in bytes, reduces pairwise, so that
// leaders that exchange it without rank 0 (control/leader_exchange.h) come to the same bits.
inline constexpr std::int64_t kPairwise = 128 * 1024;
// The same among other numbers of ranks.
inline constexpr std::int64_t kPairwiseUneven = 64 * 1024;

// Bytes.
struct AllreduceBorders {
  std::int64_t halving_from = 0;  // doubling below; halving never, if this is ring_from
  std::int64_t ring_from = 0;
};

// `round_trip` between ranks, as all of them know it alike; 0: not known.
AllreduceBorders allreduce_borders(int ranks, std::chrono::microseconds round_trip);

}  // namespace hora::collectives
