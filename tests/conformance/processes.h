// SPDX-License-Identifier: Apache-2.0
// Ranks for tests as processes of their own: what a lost process does to the others can be seen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ranks.h"

namespace hora::test {

struct ProcessResult {
  bool exited = false;  // by itself; otherwise by `signal`
  int code = 0;
  int signal = 0;
  double seconds = 0;  // from the first death to this one's end
  std::string text;    // what the body threw
};

// Forks options.size children; child r runs `body` as rank r. A body that throws ends with code 1,
// one that returns with 0. Children still alive after two minutes are killed; `stopped`, which
// cannot end by itself, once all others have ended. The calling process must have no threads.
std::vector<ProcessResult> run_processes(const WorldOptions& options, const RankBody& body,
                                         int stopped = -1);

}  // namespace hora::test
