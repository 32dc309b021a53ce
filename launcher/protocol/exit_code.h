// SPDX-License-Identifier: Apache-2.0
// The exit codes of horarun, of the agent and of its shim, and the steps at which the start of a
// rank can fail.  [pure]
#pragma once

#include <cstdint>
#include <string_view>

namespace hora::launcher {

// The exit codes of horarun, of the agent and of its shim.
// docs/reference/exit-codes.md explains those of horarun.

// Every other code is that of the rank that failed first.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,      // part of what was asked for: the doctor's findings, an uncleaned cache
  kExitUsage = 2,       // the command line or a file that it names is wrong
  kExitTimeout = 124,   // one of horarun's time limits
  kExitLauncher = 125,  // horarun's or the agent's own failure; its class is in the message
  kExitCannotExecute = 126,  // the program exists and cannot be executed
  kExitNotFound = 127,       // the program is not there
  kExitSignalBase = 128,
  // Not horarun's: ssh and similar clients end with it when they fail themselves. It also stands
  // for an end that other code of the process has reaped.
  kExitClientFailed = 255,
};

// As shells report a process that a signal ended.
constexpr int exit_code_of_signal(int signal) { return kExitSignalBase + signal; }

// The steps by which a rank comes into being. A failure to start one names its step and an errno,
// so that the report has facts and not a sentence.

// The numbers travel in RankExit.
enum class SpawnStage : std::uint8_t {
  kNone = 0,  // it was started
  // The child's steps before it executes.
  kClone,
  kSession,
  kParentDeath,
  kCgroup,
  kDescriptors,
  kLimits,
  kDirectory,
  kExecute,
  // What its parent does before that.
  kSearch,  // for the program, in PATH or by its path
  kPipes,
  kPmi,
  // The kernel found the program and not what the program names to run it.
  kInterpreter,
  kTerminal,
};
constexpr SpawnStage last_of(SpawnStage) { return SpawnStage::kTerminal; }

// "executing", "creating a process", ...: what failed, for an error text.
std::string_view spawn_stage_name(SpawnStage stage);

}  // namespace hora::launcher
