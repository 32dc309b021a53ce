// SPDX-License-Identifier: Apache-2.0
// Ranges stay ranges: "0-999999" is as short to keep and to search as it is to type.
#include "launcher/plan/rank_list.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "launcher/plan/plan.h"
#include "launcher/text/spec_location.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

Result<RankList> RankList::parse(std::string_view text, std::string_view origin) {
  RankList list;
  if (text == "none") return list;
  const SpecLine line{origin, text, 0};
  std::size_t offset = 0;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t dash = item.find('-');
    const auto first = parse_int<int>(item.substr(0, dash));
    // "3" is the range from 3 to 3.
    const auto last =
        dash == std::string_view::npos ? first : parse_int<int>(item.substr(dash + 1));
    if (!first || !last || *first < 0) {
      return spec_error(line, offset,
                        "expected ranks such as 0,4-7, or none, found " + quote(item));
    }
    if (*last >= kMaxRanks) {
      return spec_error(line, offset,
                        "rank " + std::to_string(*last) + " is too large; a job has at most " +
                            std::to_string(kMaxRanks) + " ranks");
    }
    if (*last < *first) {
      return spec_error(line, offset, "the range " + quote(item) + " ends before it begins");
    }
    list.ranges_.emplace_back(*first, *last);
    offset += item.size() + 1;
  }
  return list;
}

// A list may name each rank many times over.
std::optional<std::int64_t> RankList::index_of(int rank) const {
  std::int64_t before = 0;
  for (const auto& [first, last] : ranges_) {
    if (rank >= first && rank <= last) return before + rank - first;
    before += last - first + 1;
  }
  return std::nullopt;
}

int RankList::largest() const {
  int largest = -1;
  for (const auto& range : ranges_) largest = std::max(largest, range.second);
  return largest;
}

}  // namespace hora::launcher
