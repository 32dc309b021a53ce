// SPDX-License-Identifier: Apache-2.0
// Where the ranks' parts lie in one stretch of memory.  [pure]
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hora::collectives {

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

}  // namespace hora::collectives
