// SPDX-License-Identifier: Apache-2.0
// The state of a job's ranks, as a table and as stacks, equal ones printed once. [pure]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct RankStanding {
  int host = 0;
  ProcessStacks process;
};

// `missing` are hosts that did not answer. `why`: "SIGQUIT", "--timeout". No line is longer than
// `width` (0: any), but for the narrowest tables. `with_own_frames`: our own are not folded.
std::string hang_report_text(const std::string& why, std::vector<RankStanding> standings,
                             const std::vector<int>& missing, const std::vector<HostPlan>& hosts,
                             std::size_t width = 0, bool with_own_frames = false);

// Of the stacks of one process: a run of frames of Hora, and of what leads to them, is one line,
// and so are all of Hora's own threads.
std::string without_own_frames(const std::string& stacks);

// The stacks of one process without what differs from process to process (thread ids), so that
// equal ones compare equal.
std::string normal_stacks(const std::string& stacks);

// Which ranks wait for which in collectives, from each rank's flight recorder.
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
