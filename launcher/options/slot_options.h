// SPDX-License-Identifier: Apache-2.0
// How many ranks, on how many of the hosts: -np, --slots-per-host, --nnodes, --nproc-per-node.
// [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// job.hosts are those of -H, a hostfile or an allocation. Errors (kUsage): not as many hosts or
// slots as asked for; no number of ranks at all, which job.command may be the reason of.
Status read_slot_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
