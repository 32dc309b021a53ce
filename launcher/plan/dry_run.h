// SPDX-License-Identifier: Apache-2.0
// The plan of a job, printed instead of run.  [pure]
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/worker_environment.h"

namespace hora::launcher {

struct DryRun {
  const JobSpec& spec;
  const Plan& plan;
  const EnvironmentList& launcher_environment;  // only the names are shown
  // Where hosts get vendors' libraries from: {"Open MPI", "the host's; ..."}.
  std::vector<std::pair<std::string, std::string>> libraries = {};
  std::string ship_environment = {};                // of --ship-env, in words
  std::vector<std::string> environment_names = {};  // of the variables that lead to it
};

// Describes what would run, with one line per rank.
std::string dry_run_text(const DryRun& run);
// One JSON document; "schema": 1. Bytes that are not UTF-8 are replaced.
std::string dry_run_json(const DryRun& run);

}  // namespace hora::launcher
