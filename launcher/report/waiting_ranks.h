// SPDX-License-Identifier: Apache-2.0
// Which ranks wait for which in collectives, from each rank's flight recorder. [pure]
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
  std::int64_t behind_ms = 0;  // another rank has waited for this one for this long; 0: none does
  std::vector<int> waits_for;  // ranks that have not come
  bool all_there = false;      // it is in a collective, and so are all the others
};

// One per rank with an answer, and per rank of the hosts in `missing`, which have not answered; the
// rank that is furthest behind first. Empty when no rank uses the runtime.
std::vector<WaitingRank> find_waiting(const std::vector<RankStanding>& standings,
                                      const std::vector<int>& missing,
                                      const std::vector<HostPlan>& hosts);

// As a table, ranks that stand alike in one row.
// See fitted_table() for `width`.
std::string waiting_table(const std::vector<WaitingRank>& ranks, std::size_t width = 0);

}  // namespace hora::launcher
