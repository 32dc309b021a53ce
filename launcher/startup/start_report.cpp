// SPDX-License-Identifier: Apache-2.0
// Explains a start that timed out: the table, then for each stage the likely cause and a command to
// try, with one host as the example.
#include "launcher/startup/start_report.h"

#include <map>

#include "launcher/failures/proof.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

std::string start_timeout_text(const StartBoard& board, StartBoard::TimePoint now,
                               const std::string& reach) {
  struct Standing {
    std::string first;
    int count = 0;
  };
  std::map<Stage, Standing> standing;
  int not_begun = 0;
  for (std::size_t host = 0; host < board.names().size(); ++host) {
    const auto& steps = board.steps()[host];
    if (steps.empty()) {
      ++not_begun;
      continue;
    }
    const Stage stage = steps.back().stage;
    // These hosts wait for the others; they are not the problem.
    if (stage == Stage::kAgent || stage >= Stage::kReady) continue;
    auto& entry = standing[stage];
    if (entry.count++ == 0) entry.first = board.names()[host];
  }
  std::string text = board.table(now);
  for (const auto& [stage, entry] : standing) {
    const StageAdvice advice = stage_advice(stage);
    text += "  " + entry.first;
    if (entry.count > 1) text += " and " + std::to_string(entry.count - 1) + " more";
    text += " (" + std::string(stage_name(stage)) + "): " + std::string(advice.cause) + "\n";
    // Hosts that dial horarun cannot be tried from here.
    const bool has_way = !reach.empty() || advice.command.find("{ssh}") == std::string_view::npos;
    if (!advice.command.empty() && has_way) {
      text += "    try: " + fill_command(advice.command, reach, Host{entry.first, "", {}}) + "\n";
    }
  }
  if (not_begun > 0) {
    text += "  " + counted(not_begun, "host") + (not_begun == 1 ? " has" : " have") +
            " not begun to connect: --fan-out limits how many do at a time\n";
  }
  return text;
}

}  // namespace hora::launcher
