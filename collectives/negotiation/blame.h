// Whose fault it is that the world has ended, from what rank 0 has seen and heard.  [pure]
//
// When one rank dies, its neighbours' data planes fail too, and their complaints may arrive before
// the end of the dead rank's connection does. A connection that ends is first-hand evidence; a
// complaint is hearsay, and a rank that complains is alive. Of complaints those weigh more whose
// rank knows that it began: what others complain of follows from it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hora::collectives {

class Blame {
 public:
  // The rank's connection has ended. That of a rank that has complained before is no news: it has
  // given up, and waits to be told why.
  void lost(int rank, std::string how) {
    if (!complaint_of(rank)) lost_.emplace_back(rank, std::move(how));
  }
  // The rank says that it cannot go on; `own`: and that this began with itself.
  void complained(int rank, std::string why, bool own = false) {
    if (!complaint_of(rank)) complaints_.push_back({rank, std::move(why), own});
  }

  struct Cause {
    int rank;
    bool lost;  // otherwise it complained
    std::string text;
  };
  // The rank that was lost first, however many have complained; else the first that complained of
  // itself; else the first that complained.
  std::optional<Cause> cause() const {
    if (!lost_.empty()) return Cause{lost_.front().first, true, lost_.front().second};
    if (complaints_.empty()) return std::nullopt;
    auto cause = std::find_if(complaints_.begin(), complaints_.end(),
                              [](const Complaint& each) { return each.own; });
    if (cause == complaints_.end()) cause = complaints_.begin();
    return Cause{cause->rank, false, cause->why};
  }
  // Whether nothing that may still arrive would change cause().
  bool certain() const { return !lost_.empty(); }

 private:
  struct Complaint {
    int rank;
    std::string why;
    bool own;
  };

  bool complaint_of(int rank) const {
    return std::any_of(complaints_.begin(), complaints_.end(),
                       [rank](const Complaint& each) { return each.rank == rank; });
  }

  std::vector<std::pair<int, std::string>> lost_;
  std::vector<Complaint> complaints_;
};

}  // namespace hora::collectives
