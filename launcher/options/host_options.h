// SPDX-License-Identifier: Apache-2.0
// The options that say which hosts a job gets and how many ranks run there: --rankfile, --include,
// -np, --listen and others.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/options/settings.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// --rankfile FILE, which Open MPI 5 also calls --map-by rankfile:file=FILE.

bool has_rankfile(const OptionValues& values);

// `job` is complete but for its seats; its number of ranks is that of all programs.
// Errors (kUsage): what is wrong with the file, or cannot be used with it.
Status read_rankfile(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

// --include and --exclude.

// Before the options about slots, which then know only the hosts that are left.
Status read_host_filter(const OptionValues& values, JobSpec& job);

// Errors (kUsage): what GPUs of --include and --exclude cannot be used with. `job` is complete.
Status check_host_filter(const JobSpec& job);

// How many ranks, on how many of the hosts: -np, --slots-per-host, --nnodes, --nproc-per-node.

// job.hosts are those of -H, a hostfile or an allocation. Errors (kUsage): not as many hosts or
// slots as asked for; no number of ranks at all, which job.command may be the reason of.
Status read_slot_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

// The options of jobs whose hosts dial the launcher: --listen.

// After -H, --hostfile, the engine and the transport: what reaches hosts contradicts it. Errors are
// kUsage.
Status read_listen_options(const OptionValues& values, JobSpec& job);

}  // namespace hora::launcher
