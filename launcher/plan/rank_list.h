// SPDX-License-Identifier: Apache-2.0
// Ranks that the user lists: "0,4-7", or "none".  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

class RankList {
 public:
  // Errors (kUsage) say the column and what was expected there.
  static Result<RankList> parse(std::string_view text, std::string_view origin);

  bool contains(int rank) const { return index_of(rank).has_value(); }
  // How many ranks of the list, as it was written, are before this one.
  std::optional<std::int64_t> index_of(int rank) const;
  int largest() const;  // -1: of no rank

 private:
  std::vector<std::pair<int, int>> ranges_;  // first and last
};

}  // namespace hora::launcher
