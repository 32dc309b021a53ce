// The last words of the launcher: why the job ended, who caused it, what could not be confirmed.
// [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/job_state.h"
#include "launcher/plan.h"

namespace hora::launcher {

// Empty for a job that succeeded and left nothing behind. Whole lines, without the program's name;
// the first line is the first cause. `waiting_for` are hosts that a time-out waited for, each with
// the stage it had reached ("node3 (authenticate)").
std::string describe_outcome(const JobOutcome& outcome, const std::vector<HostPlan>& hosts,
                             const std::vector<std::string>& waiting_for);

// "SIGTERM"; "signal 42" when it has no name.
std::string signal_name(int signal);

}  // namespace hora::launcher
