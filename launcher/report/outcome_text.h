// SPDX-License-Identifier: Apache-2.0
// The launcher's last message: why the job ended, what caused it, what could not be confirmed.
// [pure]
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/failures/rank_exit_text.h"
#include "launcher/job/job_state.h"
#include "launcher/plan/chaos.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/report/advice.h"

namespace hora::launcher {

// What else is known, for the report.
struct OutcomeContext {
  std::string start_table;              // start_timeout_text(), when the start took too long
  std::string reach = "ssh";            // reach_words()
  std::vector<ChaosStrike> chaos = {};  // what --chaos did
  std::string working_directory = {};   // of the ranks
  std::vector<HostGpuFault> gpu_faults = {};
  std::vector<Program> programs = {};  // of a job that has several
  std::vector<bool> local = {};        // by host: it is this machine
  bool only_rank_0_has_stdin = false;  // --stdin
  bool rank_0_has_terminal = false;    // --pty: its standard error is there, too
  // Whether a path, seen from working_directory, exists on the launcher's machine.
  std::function<bool(const std::string& path)> has_file = [](const std::string&) { return false; };
};

// Empty for a job that succeeded and left no process. Whole lines, without the program's name; the
// first line is the first cause.
std::string describe_outcome(const JobOutcome& outcome, const std::vector<HostPlan>& hosts,
                             const OutcomeContext& context);

// The rank whose last lines the text has: that of the cause, or the one that it only follows.
int rank_reported_first(const RankExit& cause, const std::map<int, RankExit>& exits);

// "rank 3 on node2: SIGKILL (10.0 s)", the time since all ranks ran.
std::string strike_text(const ChaosStrike& strike);

// " (python3 serve.py --port ...)": the program of the rank, after its name; one short line without
// secrets. Empty for a job of one program.
std::string program_label(const std::vector<Program>& programs, int rank);

}  // namespace hora::launcher
