// SPDX-License-Identifier: Apache-2.0
// How a rank ended, in words. The agent reports facts; this is the one place that turns them into
// sentences.  [pure]
#pragma once

#include <string>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

// "executing /x/y: Permission denied"; empty when the rank was started.
std::string start_failure_text(const RankExit& exit);

// "exited with code 3", "was killed by SIGSEGV (core dumped)", "could not be started: ..."
std::string how_it_ended(const RankExit& exit);

}  // namespace hora::launcher
