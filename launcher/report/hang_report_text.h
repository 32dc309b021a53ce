// SPDX-License-Identifier: Apache-2.0
// The state of a job's ranks, as a table and as stacks, equal ones printed once. [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct RankStanding {
  int host = 0;
  ProcessStacks process;
};

// `missing` are hosts that did not answer. `why`: "SIGQUIT", "--timeout".
std::string hang_report_text(const std::string& why, std::vector<RankStanding> standings,
                             const std::vector<int>& missing, const std::vector<HostPlan>& hosts);

// The stacks of one process without what differs from process to process (thread ids), so that
// equal ones compare equal.
std::string normal_stacks(const std::string& stacks);

}  // namespace hora::launcher
