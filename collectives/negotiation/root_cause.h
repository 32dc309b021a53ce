// SPDX-License-Identifier: Apache-2.0
// Which rank caused the end of the world, from the messages at rank 0. [pure] When one rank dies,
// its neighbours' data planes fail too, and their complaints may arrive before the end of the dead
// rank's connection does. A connection that ends is first-hand evidence; a complaint is hearsay,
// and a rank that complains is alive. Among complaints, those of ranks that know themselves to be
// the origin weigh most, because the others' complaints follow from theirs. Those of ranks that
// were ordered to break off weigh least.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hora::collectives {

// Where the failure began, as far as the complaining rank knows.
enum class Origin { kUnknown, kHere, kElsewhere };

class RootCause {
 public:
  // The rank's connection has ended. After a complaint of that rank, this adds nothing: it has
  // given up and waits for the reason.
  void lost(int rank, std::string how) {
    if (!complaint_of(rank)) lost_.emplace_back(rank, std::move(how));
  }
  // The rank reports that it cannot continue.
  void complained(int rank, std::string why, Origin origin = Origin::kUnknown) {
    if (!complaint_of(rank)) complaints_.push_back({rank, std::move(why), origin});
  }

  struct Cause {
    int rank;
    bool lost;  // true: its connection ended; false: it complained
    std::string text;
  };
  // The rank that was lost first, however many have complained; otherwise the first that complained
  // of itself; otherwise the first that complained without an order to break off.
  std::optional<Cause> cause() const {
    if (!lost_.empty()) return Cause{lost_.front().first, true, lost_.front().second};
    for (const Origin origin : {Origin::kHere, Origin::kUnknown, Origin::kElsewhere}) {
      const auto first = std::find_if(complaints_.begin(), complaints_.end(),
                                      [&](const Complaint& each) { return each.origin == origin; });
      if (first != complaints_.end()) return Cause{first->rank, false, first->why};
    }
    return std::nullopt;
  }
  // True when nothing that may still arrive can change cause().
  bool certain() const { return !lost_.empty(); }

 private:
  struct Complaint {
    int rank;
    std::string why;
    Origin origin;
  };

  bool complaint_of(int rank) const {
    return std::any_of(complaints_.begin(), complaints_.end(),
                       [rank](const Complaint& each) { return each.rank == rank; });
  }

  std::vector<std::pair<int, std::string>> lost_;
  std::vector<Complaint> complaints_;
};

}  // namespace hora::collectives
