// SPDX-License-Identifier: Apache-2.0
// Who waits for whom in collectives, from what each rank's flight recorder says.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/report/hang_report_text.h"

namespace hora::launcher {

struct WaitingRank {
  int rank = 0;
  std::string stands_in;  // "allreduce 'x'", "no collective; its last was ..."
  std::int64_t for_ms = 0;
  std::int64_t behind_ms = 0;  // for so long another rank has waited for this one; 0: nobody does
  std::vector<int> waits_for;  // ranks that have not come
  bool all_there = false;      // it is in a collective, and so are all the others
};

// One per rank that was heard of, and per rank of the hosts in `missing`, which have not answered;
// who is furthest behind first. Empty when no rank uses the runtime.
std::vector<WaitingRank> find_waiting(const std::vector<RankStanding>& standings,
                                      const std::vector<int>& missing,
                                      const std::vector<HostPlan>& hosts);

// As a table, ranks that stand alike in one row.
std::string waiting_table(const std::vector<WaitingRank>& ranks);

}  // namespace hora::launcher
