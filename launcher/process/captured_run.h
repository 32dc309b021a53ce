// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end and keeps what it prints. For programs that answer at once, such as
// `mpirun --version`: the caller blocks.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

struct CapturedRun {
  int exit_code = 0;   // 0..255, or 128 + signal
  std::string output;  // standard output, then standard error; each cut after 1 MiB
  std::string errors;  // the part of that from standard error
};

// Runs argv[0], which is searched in $PATH, with an empty standard input and this environment. The
// program's own end counts: remaining processes of its process group are killed, and so is all of
// it after `timeout`. Blocks the calling thread, with which the program dies. Errors: kTimedOut
// when the program did not end, with or without its output open; else as PipedChild::start().
Result<CapturedRun> run_captured(const std::vector<std::string>& argv, Milliseconds timeout);

}  // namespace hora::launcher
