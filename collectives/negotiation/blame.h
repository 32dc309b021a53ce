// Whose fault it is that the world has ended, from what rank 0 has seen and heard.  [pure]
//
// When one rank dies, its neighbours' data planes fail too, and their complaints may arrive before
// the end of the dead rank's connection does. A connection that ends is first-hand evidence; a
// complaint is hearsay, and a rank that complains is alive.
#pragma once

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
  // The rank says that it cannot go on.
  void complained(int rank, std::string why) {
    if (!complaint_of(rank)) complaints_.emplace_back(rank, std::move(why));
  }

  struct Cause {
    int rank;
    bool lost;  // otherwise it complained
    std::string text;
  };
  // The rank that was lost first, however many have complained; else the first that complained.
  std::optional<Cause> cause() const {
    if (!lost_.empty()) return Cause{lost_.front().first, true, lost_.front().second};
    if (complaints_.empty()) return std::nullopt;
    return Cause{complaints_.front().first, false, complaints_.front().second};
  }
  // Whether nothing that may still arrive would change cause().
  bool certain() const { return !lost_.empty(); }

 private:
  bool complaint_of(int rank) const {
    for (const auto& [who, why] : complaints_) {
      if (who == rank) return true;
    }
    return false;
  }

  std::vector<std::pair<int, std::string>> lost_;
  std::vector<std::pair<int, std::string>> complaints_;
};

}  // namespace hora::collectives
