// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"

#include <cerrno>
#include <system_error>

#include "launcher/failures/failure_code.h"
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

// Loaders have fixed names, by the C library and the processor.
std::string_view built_for(std::string_view loader) {
  if (loader.find("/ld-musl-") != std::string_view::npos) return "musl, as of Alpine Linux";
  if (loader == "/lib/ld-linux.so.2") return "glibc and 32-bit x86";
  if (loader.substr(0, 17) == "/lib/ld-linux-arm" || loader == "/lib/ld-linux.so.3") {
    return "glibc and 32-bit ARM";
  }
  if (loader.substr(0, 12) == "/lib/ld-linu" || loader.substr(0, 14) == "/lib64/ld-linu") {
    return "glibc";
  }
  return {};
}

std::string loader_text(const RankExit& exit) {
  std::string text = "its dynamic loader " + quote(exit.interpreter) + " does not exist";
  const std::string_view library = built_for(exit.interpreter);
  if (library.empty()) return text + ": it was built for another system's folders";
  return text + ": it was built for " + std::string(library);
}

}  // namespace

std::string start_failure_text(const RankExit& exit) {
  if (exit.stage == SpawnStage::kNone) return {};
  std::string text(spawn_stage_name(exit.stage));
  if (!exit.program.empty()) text += " " + visible_line(exit.program);
  text += ": ";
  if (exit.stage == SpawnStage::kInterpreter) {
    return text + (exit.code == failure::kLoader ? loader_text(exit) : interpreter_text(exit));
  }
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
