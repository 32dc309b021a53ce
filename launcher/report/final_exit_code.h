// SPDX-License-Identifier: Apache-2.0
// The launcher's exit code, once it is known what the job has produced. [pure]
#pragma once

#include "launcher/job/job_state.h"

namespace hora::launcher {

struct EndOfOutput {
  bool records_lost = false;  // output files, the report, a timeline: lost_records.h
  int console_errno = 0;      // why standard output or standard error took no more; 0: it did
  int given_up_by = 0;        // the signal of a user who did not wait for readers; 0: none
};

// The code of the outcome comes first; a successful job has failed when a file that it had to write
// is lost.
int final_exit_code(const JobOutcome& outcome, const EndOfOutput& end);

}  // namespace hora::launcher
