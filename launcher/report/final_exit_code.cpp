// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/final_exit_code.h"

#include <signal.h>

#include <cerrno>

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

int final_exit_code(const JobOutcome& outcome, const EndOfOutput& end) {
  if (const int code = outcome.exit_code(); code != 0) return code;
  if (end.records_lost) return kExitLauncher;
  // As for any program of a pipe whose reader has gone.
  if (end.console_errno == EPIPE) return kExitSignalBase + SIGPIPE;
  return end.given_up_by == 0 ? 0 : kExitSignalBase + end.given_up_by;
}

}  // namespace hora::launcher
