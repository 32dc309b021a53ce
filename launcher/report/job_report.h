// SPDX-License-Identifier: Apache-2.0
// The record of a job that has ended, for --report: one JSON document, or one page of HTML that
// needs nothing else.  [pure] No environment is in it, and what looks like a secret is blanked.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/job_figures.h"
#include "launcher/job/job_state.h"
#include "launcher/job/restart_policy.h"
#include "launcher/plan/chaos.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/report/advice.h"
#include "launcher/report/lost_records.h"
#include "launcher/report/resource_usage.h"
#include "launcher/report/secrets.h"
#include "launcher/startup/start_board.h"

namespace hora::launcher {

struct JobReport {
  std::string version;
  std::string job_id;
  std::string ended_at;  // RFC 3339
  std::vector<std::string> command;
  std::vector<Program> programs;  // of a job that has several
  std::string working_directory;
  std::optional<JobEngine> engine;
  const Plan* plan = nullptr;
  const JobOutcome* outcome = nullptr;
  int exit_code = 0;  // of the launcher: the outcome's, or that of a record that is lost
  const StartBoard* board = nullptr;
  std::vector<std::optional<Hello>> hellos;             // by host
  std::vector<std::pair<std::string, double>> phases;   // name, ms since the start
  std::string text;                                     // what was said on the terminal
  std::string stacks;                                   // of the last hang report, if any
  std::vector<ChaosStrike> chaos;                       // what --chaos did
  std::vector<HostGpuFault> gpu_faults;                 // what the hosts' kernels said of GPUs
  std::vector<LostRecord> lost;                         // what else was to be left
  std::vector<RestartPolicy::Attempt> failed_attempts;  // of --restarts
  std::vector<std::string> events;                      // as --json writes them, the newest ones
  SecretFilter secrets;
  double seconds = 0;
  std::chrono::milliseconds ran{0};  // for which all ranks ran
  std::vector<UsagePoint> usage;     // in that time
};

std::vector<RankDelay> delays_of(const JobReport& report);

std::string report_json(const JobReport& report);
std::string report_html(const JobReport& report);

}  // namespace hora::launcher
