// SPDX-License-Identifier: Apache-2.0
// Which host is to be left out when ranks of an elastic job cannot connect to each other, epoch
// after epoch: whoever is cut off for good would otherwise keep the others from meeting for ever.
// [pure]
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hora::launcher::elastic {

class UnreachedHosts {
 public:
  // A host of the epoch that has ended, in the order of the ranks.
  struct Member {
    std::string name;
    bool knows_state = false;  // of the training
  };
  struct LeftOut {
    std::size_t host = 0;              // its place among the members
    std::vector<std::string> missing;  // those that it has no connection with
  };

  // In the epoch that is going on, these two had no connection.
  void note(std::size_t one, std::size_t other) {
    if (one != other) pairs_.insert(std::minmax(one, other));
  }

  // The epoch is over. Answers the hosts that have spoilt too many.
  std::vector<LeftOut> end_epoch(const std::vector<Member>& members);

  // So many epochs in a row: a network that is being mended has some time.
  static constexpr int kMostEpochs = 3;

 private:
  std::set<std::pair<std::size_t, std::size_t>> pairs_;  // the lower place first
  std::map<std::string, int> spoilt_;                    // epochs, by host
};

}  // namespace hora::launcher::elastic
