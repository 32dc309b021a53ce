// SPDX-License-Identifier: Apache-2.0
// The exit codes of horarun, of the agent and of its shim.  [pure]
// docs/reference/exit-codes.md explains those of horarun.
#pragma once

namespace hora::launcher {

// Every other code is that of the rank that failed first.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,      // part of what was asked for: the doctor's findings, an uncleaned cache
  kExitUsage = 2,       // the command line or a file that it names is wrong
  kExitTimeout = 124,   // one of horarun's time limits
  kExitLauncher = 125,  // horarun's or the agent's own failure; its class is in the message
  kExitCannotExecute = 126,  // the program is there and cannot be executed
  kExitNotFound = 127,       // the program is not there
  kExitSignalBase = 128,
  // Not horarun's: ssh and similar clients end with it when they fail themselves. It also stands
  // for an end that other code of the process has reaped.
  kExitClientFailed = 255,
};

// As shells report a process that a signal ended.
constexpr int exit_code_of_signal(int signal) { return kExitSignalBase + signal; }

}  // namespace hora::launcher
