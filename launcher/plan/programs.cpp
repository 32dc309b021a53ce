// SPDX-License-Identifier: Apache-2.0
// Programs own consecutive ranks, as in mpirun and Hydra: the order on the command line is the
// order of the ranks, wherever the hosts put them.
#include "launcher/plan/programs.h"

#include "launcher/text/shell_words.h"

namespace hora::launcher {

// A walk over the programs, of which jobs have a few; ranks they may have a million.
std::size_t program_of_rank(const std::vector<Program>& programs, int rank) {
  std::size_t index = 0;
  for (int end = programs.front().ranks; index + 1 < programs.size() && rank >= end;) {
    end += programs[++index].ranks;
  }
  return index;
}

std::string programs_text(const std::vector<std::vector<std::string>>& commands) {
  std::string text;
  for (const auto& command : commands) {
    if (!text.empty()) text += " : ";
    text += quote_shell_words(command);
  }
  return text;
}

std::vector<std::vector<std::string>> commands_of(const JobSpec& spec) {
  if (spec.programs.empty()) return {spec.command};
  std::vector<std::vector<std::string>> commands;
  for (const Program& program : spec.programs) commands.push_back(program.command);
  return commands;
}

}  // namespace hora::launcher
