// SPDX-License-Identifier: Apache-2.0
// What to do about a program that could not be started.  [pure]
#pragma once

#include <string>

#include "launcher/failures/rank_exit_text.h"

namespace hora::launcher {

// Whole lines, the class first; empty for a class that is not known here.
std::string start_advice(const RankExit& exit);

}  // namespace hora::launcher
