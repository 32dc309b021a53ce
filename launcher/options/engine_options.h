// SPDX-License-Identifier: Apache-2.0
// The options of engines: whose hosts a job gets that names none, and how its agents start.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// After -H and --hostfile were read, before the transport is chosen: sets the hosts, the engine,
// and the command that starts agents. Errors (kUsage): the engine asked for is not here, or its
// allocation cannot be read.
Status read_engine_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job);

// For --show-config: the allocation, or why it cannot be used; empty where none would be.
std::string describe_allocation(const OptionValues& values, const ProcessInputs& inputs);

}  // namespace hora::launcher
