// SPDX-License-Identifier: Apache-2.0
// horarun jobs, attach and cancel: they ask the launchers that run on this machine. And the output
// of a job that was started with --detach, as it comes.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/kept_output.h"
#include "launcher/options/command_line.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Prints to stdout, and answers the exit code. `runtime_directory`: $XDG_RUNTIME_DIR.
Result<int> ask_jobs(const AskJobs& command, const std::string& runtime_directory);

struct Follow {
  int job = 0;
  std::FILE* to = stdout;
  bool until_running = false;  // else until the job has ended
  // Whether the job's process has ended, and how.
  std::function<std::optional<int>()> ended;
};

// The exit code of the job; nothing when it runs, and was followed only until then.
Result<std::optional<int>> follow_job(const std::vector<std::string>& folders, OutputReader reader,
                                      const Follow& follow);

}  // namespace hora::launcher
