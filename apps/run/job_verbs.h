// SPDX-License-Identifier: Apache-2.0
// horarun jobs, attach and cancel: they ask the launchers that run on this machine.
#pragma once

#include <string>

#include "launcher/options/command_line.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Prints to stdout, and answers the exit code. `runtime_directory`: $XDG_RUNTIME_DIR.
Result<int> ask_jobs(const AskJobs& command, const std::string& runtime_directory);

}  // namespace hora::launcher
