// SPDX-License-Identifier: Apache-2.0
// The layout of the memory that the ranks of a host share; the same on every rank.
// [pure]
//
//   lines   one BoardLine per rank
//   areas   per rank: two small slots, a ring of kDepth chunks
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hora::collectives::shm {

inline constexpr std::uint64_t kDepth = 4;  // chunks in a ring
inline constexpr std::int64_t kPageBytes = 4096;

inline std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Sizes in bytes. `line_bytes` is for each rank's counters.
struct Layout {
  int size = 1;
  std::int64_t line_bytes = 0;
  std::int64_t small_bytes = 0;  // what every rank gives and reduces at once
  std::int64_t chunk_bytes = 0;  // what one rank gives at a time
  std::int64_t part_bytes = 0;   // what one rank reduces or takes of it

  std::int64_t lines() const { return round_up(size * line_bytes, kPageBytes); }
  std::int64_t small() const { return round_up(2 * small_bytes, kPageBytes); }
  std::int64_t per_rank() const {
    return small() + static_cast<std::int64_t>(kDepth) * chunk_bytes;
  }
  std::int64_t total() const { return lines() + size * per_rank(); }

  char* rank_area(char* base, int rank) const { return base + lines() + rank * per_rank(); }
  char* small_slot(char* base, int rank, std::uint64_t turn) const {
    return rank_area(base, rank) + static_cast<std::int64_t>(turn % 2) * small_bytes;
  }
  char* chunk(char* base, int rank, std::uint64_t turn) const {
    return rank_area(base, rank) + small() + static_cast<std::int64_t>(turn % kDepth) * chunk_bytes;
  }
};

// Fits the rings of all ranks into the budget, with parts of one page to 128 KiB. The data that
// each rank reads of all others in one step then stays in its cache.
inline Layout plan_layout(int size, std::int64_t budget_bytes) {
  Layout layout;
  layout.size = size;
  layout.small_bytes = std::clamp(std::int64_t{256 * 1024} / size / kPageBytes * kPageBytes,
                                  kPageBytes, std::int64_t{128 * 1024});
  const std::int64_t most = 128 * 1024;
  const std::int64_t affordable =
      budget_bytes / (std::int64_t{size} * static_cast<std::int64_t>(kDepth) * size);
  layout.part_bytes = std::clamp(affordable / kPageBytes * kPageBytes, kPageBytes, most);
  layout.chunk_bytes = layout.part_bytes * size;
  return layout;
}

}  // namespace hora::collectives::shm
