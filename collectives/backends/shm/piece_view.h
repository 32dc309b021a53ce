// SPDX-License-Identifier: Apache-2.0
// The tensors of a fused step as one long vector, without packing them.  [pure]
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collectives/backend.h"

namespace hora::collectives {

class PieceView {
 public:
  void assign(const Piece* pieces, int count) {
    pieces_ = pieces;
    starts_.clear();
    std::int64_t start = 0;
    for (int i = 0; i < count; ++i) {
      starts_.push_back(start);
      start += pieces[i].count;
    }
    total_ = start;
  }

  std::int64_t count() const { return total_; }

  // Calls function(piece, first element within the piece, elements, elements from `begin`) for each
  // stretch of [begin, end) that lies in one piece.
  template <typename Function>
  void each(std::int64_t begin, std::int64_t end, const Function& function) const {
    if (begin >= end) return;
    auto at = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                       starts_.begin() - 1);
    for (std::int64_t place = begin; place < end; ++at) {
      const Piece& piece = pieces_[at];
      const std::int64_t within = place - starts_[at];
      const std::int64_t length = std::min(end - place, piece.count - within);
      if (length <= 0) continue;  // an empty piece
      function(piece, within, length, place - begin);
      place += length;
    }
  }

 private:
  const Piece* pieces_ = nullptr;
  std::vector<std::int64_t> starts_;  // the first element of each piece
  std::int64_t total_ = 0;
};

}  // namespace hora::collectives
