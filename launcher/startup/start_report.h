// SPDX-License-Identifier: Apache-2.0
// The text of a start that timed out.  [pure]
#pragma once

#include <string>

#include "launcher/startup/start_board.h"

namespace hora::launcher {

// The table of hosts and stages, and for each stage in which hosts stand the likely cause and the
// command that shows it. `reach`: see reach_words().
std::string start_timeout_text(const StartBoard& board, StartBoard::TimePoint now,
                               const std::string& reach);

}  // namespace hora::launcher
