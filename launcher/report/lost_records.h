// SPDX-License-Identifier: Apache-2.0
// What a job has written incompletely or not at all: files of its output, its report, its events, a
// timeline. [pure] The user is informed, and the job has not succeeded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/job/job_state.h"

namespace hora::launcher {

struct LostRecord {
  std::string what;    // "--output-filename: out/rank.0/stdout"
  std::string reason;  // "No space left on device"
  std::string code;    // its class: launcher/failures/failure_code.h
};

// Whole lines, without the program's name; empty when nothing is lost.
std::string lost_records_text(const std::vector<LostRecord>& lost);

// The launcher's exit code, once it is known what the job has produced.
struct EndOfOutput {
  bool records_lost = false;  // output files, the report, a timeline: lost_records.h
  int console_errno = 0;      // why standard output or standard error took no more; 0: it did
  int given_up_by = 0;        // the signal of a user who did not wait for readers; 0: none
};

// The code of the outcome comes first; a successful job has failed when a file that it had to write
// is lost.
int final_exit_code(const JobOutcome& outcome, const EndOfOutput& end);

}  // namespace hora::launcher
