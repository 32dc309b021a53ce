// SPDX-License-Identifier: Apache-2.0
// --include and --exclude.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Before the options about slots, which then know only the hosts that are left.
Status read_host_filter(const OptionValues& values, JobSpec& job);

// Errors (kUsage): what GPUs of --include and --exclude cannot be used with. `job` is complete.
Status check_host_filter(const JobSpec& job);

}  // namespace hora::launcher
