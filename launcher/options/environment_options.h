// SPDX-License-Identifier: Apache-2.0
// -x and --env-file: variables that the user sets for the ranks.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/options/option_check.h"
#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// Sets job.variables: those of files first, so that -x wins. Errors (kUsage): no name, a variable
// that horarun itself sets for each rank, a file that cannot be read; with the place in the file.
// `warnings`: of a variable that is to be passed on and is not set here.
Status read_environment_options(const OptionValues& values, const ProcessInputs& inputs,
                                JobSpec& job, std::vector<std::string>& warnings);

}  // namespace hora::launcher
