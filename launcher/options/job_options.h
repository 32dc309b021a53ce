// SPDX-License-Identifier: Apache-2.0
// Checked option values and the environment become a JobSpec.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/options/command_line.h"
#include "launcher/options/option_check.h"
#include "launcher/options/settings.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// -x and --env-file: variables that the user sets for the ranks.

// Sets job.variables: those of files first, so that -x wins. Errors (kUsage): no name, a variable
// that horarun itself sets for each rank, a file that cannot be read; with the place in the file.
// `warnings`: of a variable that is to be passed on and is not set here.
Status read_environment_options(const OptionValues& values, const ProcessInputs& inputs,
                                JobSpec& job, std::vector<std::string>& warnings);

// Checked option values and the environment become a JobSpec.

// Hosts and how to reach them: what the launch and the cache verb have in common.
Status read_reach_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

// The values of the two options, else `otherwise`; 0: without a limit.
CacheLimits read_cache_limits(const OptionValues& values, std::string_view max_age,
                              std::string_view max_size, CacheLimits otherwise);

// Files that end in .json or .html.
Status read_reports(const OptionValues& values, JobSpec& job);

// All of a launch but for the command. `warnings`: one line each.
Status read_job_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job,
                        std::vector<std::string>& warnings);

}  // namespace hora::launcher
