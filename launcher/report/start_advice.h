// SPDX-License-Identifier: Apache-2.0
// What to do about a program that could not be started.  [pure]
#pragma once

#include <string>

#include "launcher/failures/rank_exit_text.h"

namespace hora::launcher {

// Whole lines, the class first; empty for a class that is not known here. `has_it`: the ranks'
// directory has a file of that name, on the launcher's machine.
std::string start_advice(const RankExit& exit, bool has_it);

}  // namespace hora::launcher
