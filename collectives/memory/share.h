// SPDX-License-Identifier: Apache-2.0
// The part of a tensor that each of several ranks reduces for all of them.  [pure]
#pragma once

#include <algorithm>
#include <cstdint>

namespace hora::collectives {

// Elements, from the first to before the end.
struct Share {
  std::int64_t begin;
  std::int64_t end;
};

// The elements of [begin, begin + left) that each of `size` ranks reduces: equal shares, so that
// every rank has work, in whole cache lines, so that two ranks never write to the same one. The
// last ones may be short or empty. `width`: bytes of an element.
inline Share share_of(int rank, int size, std::int64_t begin, std::int64_t left,
                      std::int64_t width) {
  constexpr std::int64_t kLineBytes = 64;
  const std::int64_t unit = kLineBytes / std::min<std::int64_t>(width, kLineBytes);
  const std::int64_t equal = (left + size - 1) / size;
  const std::int64_t share = (equal + unit - 1) / unit * unit;
  return {begin + std::min(left, share * rank), begin + std::min(left, share * (rank + 1))};
}

}  // namespace hora::collectives
