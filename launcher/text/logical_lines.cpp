// SPDX-License-Identifier: Apache-2.0
// As the standard of MPI has it for mpiexec's -configfile, and srun for --multi-prog.
#include "launcher/text/logical_lines.h"

#include "rendezvous/base/text.h"

namespace hora::launcher {

std::vector<LogicalLine> logical_lines(std::string_view text) {
  std::vector<LogicalLine> lines;
  std::size_t number = 0;
  bool goes_on = false;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!goes_on) {
      if (trim(line).empty() || trim(line).front() == '#') continue;
      lines.push_back({number, ""});
    }
    goes_on = !line.empty() && line.back() == '\\';
    if (goes_on) line.remove_suffix(1);
    lines.back().text += line;
  }
  return lines;
}

}  // namespace hora::launcher
