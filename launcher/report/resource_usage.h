// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job ended and what they used, as text.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// "0-3,7": numbers in order, runs drawn together.
std::string number_ranges(const std::vector<int>& numbers);

// One line per way to end: "exit code 0: ranks 0-2", "SIGTERM, ended by us: ranks 4-7".
std::string exit_table(const std::map<int, RankExit>& exits);

// One line per rank: peak memory, CPU time. Of many ranks the largest ones, and the sum.
std::string resource_usage_text(const std::map<int, RankExit>& exits,
                                const std::vector<HostPlan>& hosts);

// What a rank has cost the others, all collectives together: the longest wait of a rank minus its
// own wait, as in launcher/control/job_figures.h.
struct RankDelay {
  int rank = 0;
  std::string host;
  std::int64_t late_ms = 0;
  double share = 0;  // of the time for which the ranks ran
};
// The ranks that were late for at least a hundredth of that time, at most ten, the worst first.
std::vector<RankDelay> rank_delays(const std::map<int, RankExit>& exits,
                                   const std::vector<HostPlan>& hosts,
                                   std::chrono::milliseconds ran);
// "rank 2 on b: the others waited 4.6 s for it, 48% of the time"
std::string delay_text(const RankDelay& delay);

// "1.2 GiB"
std::string bytes_text(std::int64_t bytes);

}  // namespace hora::launcher
