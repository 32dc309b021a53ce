// SPDX-License-Identifier: Apache-2.0
// --multi-prog, srun's: the program is a file whose lines say what which ranks run.  [pure]
#pragma once

#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// `job` is complete; its command is the file. Lines are "0,2-3 PROGRAM ARGUMENTS" or "* ..." for
// the ranks that no other line has; in them, %t is the rank and %o its place among those of the
// line. Ranks in a row with the same words are one of job.programs; the variables are for all.
// Errors (kUsage) begin with the file and the line.
Status use_rank_programs(const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
