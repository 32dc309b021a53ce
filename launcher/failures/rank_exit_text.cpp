// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"

#include <cerrno>
#include <system_error>

#include "launcher/text/signal_name.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

std::string interpreter_text(const RankExit& exit) {
  if (exit.errnum == ENOEXEC) {
    return "its #! line names no interpreter, or is longer than the kernel reads";
  }
  if (exit.interpreter.empty()) return "its interpreter does not exist";
  std::string text = "its interpreter " + quote(exit.interpreter) + " does not exist";
  // The kernel takes the carriage return for a part of the name.
  if (exit.interpreter.back() == '\r') {
    text += ": the line ends in a carriage return, as lines of Windows files do";
  }
  return text;
}

}  // namespace

std::string start_failure_text(const RankExit& exit) {
  if (exit.stage == SpawnStage::kNone) return {};
  std::string text(spawn_stage_name(exit.stage));
  if (!exit.program.empty()) text += " " + visible_line(exit.program);
  text += ": ";
  if (exit.stage == SpawnStage::kInterpreter) return text + interpreter_text(exit);
  if (exit.stage == SpawnStage::kSearch && exit.errnum == 0) return text + "not found in PATH";
  if (exit.stage == SpawnStage::kExecute && exit.errnum == E2BIG) {
    return text + "the environment and the arguments are larger than this machine allows";
  }
  return text + std::generic_category().message(exit.errnum);
}

std::string how_it_ended(const RankExit& exit) {
  if (exit.stage != SpawnStage::kNone) return "could not be started: " + start_failure_text(exit);
  if (exit.signal != 0) {
    return "was killed by " + signal_name(exit.signal) + (exit.core_dumped ? " (core dumped)" : "");
  }
  return "exited with code " + std::to_string(exit.exit_code);
}

}  // namespace hora::launcher
