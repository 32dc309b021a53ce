// SPDX-License-Identifier: Apache-2.0
// A command that begins with env(1), as those of engines do: its variables can be set without that
// program, which would cost a start.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct CommandWords {
  std::vector<std::string> argv;
  std::vector<std::string> unset;  // names
  std::vector<std::string> set;    // NAME=VALUE
};

// "env -u NAME NAME=VALUE program": what follows it. Anything else of env is left to env.
CommandWords without_env(const std::vector<std::string>& words);

// Whether the command sets or unsets a NAME=VALUE.
bool is_replaced(const CommandWords& command, std::string_view variable);

}  // namespace hora::launcher
