// SPDX-License-Identifier: Apache-2.0
// The options of jobs in pods of their own: horarun k8s.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Behind all other options of the job, some of which have other defaults in pods. Errors are
// kUsage.
Status read_pod_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
