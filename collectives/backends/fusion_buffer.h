// SPDX-License-Identifier: Apache-2.0
// One contiguous stretch of memory in place of many tensors, for code that can only work on one.
// One thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"

namespace hora::collectives {

inline void copy_unless_same(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

class FusionBuffer {
 public:
  // Returns room for `bytes` bytes with undefined content. It grows and never shrinks.
  char* room(std::int64_t bytes) {
    if (static_cast<std::int64_t>(bytes_.size()) < bytes) {
      bytes_.resize(static_cast<std::size_t>(bytes));
    }
    return bytes_.data();
  }

  // Copies the inputs of a step one after the other and returns them as one piece; elements have
  // `width` bytes.
  Piece pack(const Step& step, std::int64_t width) {
    Piece all;
    for (int i = 0; i < step.piece_count; ++i) all.count += step.pieces[i].count;
    char* place = room(all.count * width);
    all.input = all.output = place;
    const Activity activity(step, "MEMCPY_IN_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count; ++i) {
      copy_unless_same(place, step.pieces[i].input, step.pieces[i].count * width);
      place += step.pieces[i].count * width;
    }
    return all;
  }
  // Copies the result back to the outputs.
  void unpack(const Step& step, std::int64_t width) const {
    const char* place = bytes_.data();
    const Activity activity(step, "MEMCPY_OUT_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count; ++i) {
      copy_unless_same(step.pieces[i].output, place, step.pieces[i].count * width);
      place += step.pieces[i].count * width;
    }
  }

 private:
  std::vector<char> bytes_;
};

}  // namespace hora::collectives
