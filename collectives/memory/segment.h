// SPDX-License-Identifier: Apache-2.0
// Segments of shared memory, and how a process passes one to its peers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::collectives {

// The part of a tensor that each of several ranks reduces for all of them.

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

// A stretch of memory that some ranks of one host share. A Segment owns its mapping.

// Gives a text to every rank of a group and returns theirs, by index. Collective.
using Allgather = std::function<Result<std::vector<std::string>>(const std::string&)>;

class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  // Collective over `ranks` (global ones, by index): index 0 creates the memory and all map it. It
  // is zeroed, and has no name in any file system when this returns. If one rank fails, all return
  // an error.
  static Result<Segment> open(std::span<const std::int32_t> ranks, int index, std::size_t bytes,
                              const Allgather& allgather);
  // Memory for one process alone.
  static Result<Segment> open_private(std::size_t bytes);

  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  // Whether index 0 has allocated all pages; otherwise the first touch allocates each.
  bool filled() const { return filled_; }

 private:
  Segment(void* data, std::size_t size, bool filled) : data_(data), size_(size), filled_(filled) {}

  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool filled_ = false;
};

}  // namespace hora::collectives
