// SPDX-License-Identifier: Apache-2.0
// --rankfile FILE, which Open MPI 5 also calls --map-by rankfile:file=FILE.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

bool has_rankfile(const OptionValues& values);

// `job` is complete but for its seats; its number of ranks is that of all programs.
// Errors (kUsage): what is wrong with the file, or cannot be used with it.
Status read_rankfile(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
