// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/lost_records.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostLost = 32;

}  // namespace

std::string lost_records_text(const std::vector<LostRecord>& lost) {
  if (lost.empty()) return {};
  std::string text = "not all of the job's record could be written:\n";
  for (std::size_t i = 0; i < std::min(lost.size(), kMostLost); ++i) {
    text += "  " + lost[i].what + ": " + lost[i].reason + " [" + lost[i].code + "]\n";
  }
  if (lost.size() > kMostLost) {
    text += "  and " + std::to_string(lost.size() - kMostLost) + " more\n";
  }
  return text;
}

int final_exit_code(const JobOutcome& outcome, const EndOfOutput& end) {
  if (const int code = outcome.exit_code(); code != 0) return code;
  if (end.records_lost) return kExitLauncher;
  // As for any program of a pipe whose reader has gone.
  if (end.console_errno == EPIPE) return kExitSignalBase + SIGPIPE;
  return end.given_up_by == 0 ? 0 : kExitSignalBase + end.given_up_by;
}

}  // namespace hora::launcher
