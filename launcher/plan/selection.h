// SPDX-License-Identifier: Apache-2.0
// Which hosts and ranks a user means: ranges of host names, --include and --exclude, lists of
// ranks.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Host ranges: "n[01-03,7]" names n01, n02, n03 and n7.

struct RangeProblem {
  std::size_t offset = 0;  // into the pattern
  std::string message;
};

// Expands every "[...]" of `pattern`; several multiply, the last one counting fastest. A number
// with leading zeros pads those of its range to its own width. A pattern without brackets is one
// name. At most `limit` names, so that a slip such as [1-999999999] costs a message and no memory.
std::variant<std::vector<std::string>, RangeProblem> expand_host_range(std::string_view pattern,
                                                                       std::size_t limit);

// --include and --exclude: some of the hosts, or some GPUs of a host, as DeepSpeed has them.
//   list := term { "@" term }      term := hosts [":" gpus]
// "a@b:0,2" is all of a and GPUs 0 and 2 of b; hosts may be several ("a,b", "n[1-4]:0-3"), as in
// -H.

struct HostTerm {
  std::string host;
  std::vector<int> gpus;  // empty: the whole host
};

// Errors (kUsage) say the column. `origin` is the option.
Result<std::vector<HostTerm>> parse_host_terms(std::string_view text, std::string_view origin);

// Only these, in the order of `hosts`. A host with named GPUs has one slot for each, and Host::gpus
// lists them. `otherwise` are the slots of a host without a number, if that is known. Errors
// (kUsage): a host that is not among them, a GPU beyond its slots, nothing left.
Result<std::vector<Host>> include_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise);
// All but these. GPUs can be left out of a host only if its number of slots is known.
Result<std::vector<Host>> exclude_hosts(const std::vector<Host>& hosts,
                                        const std::vector<HostTerm>& terms,
                                        std::optional<int> otherwise);

// Ranks that the user lists: "0,4-7", or "none".

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
