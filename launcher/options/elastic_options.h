// SPDX-License-Identifier: Apache-2.0
// The options that make a job elastic.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// Whether one of the options is there that make a job elastic.
bool is_elastic(const OptionValues& values);
// Options that mean nothing in another job.
bool is_for_elastic_jobs(const OptionRow& row);

// After -np, -H and --slots-per-host were read. A missing -np is --min-np.
Status read_elastic_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
