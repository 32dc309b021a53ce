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

}  // namespace hora::launcher
