// SPDX-License-Identifier: Apache-2.0
// Runs a function in a child process, for code that may crash or hang: a vendor's library.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// What `work` answers. Errors: kFailed when the child was ended by a signal or by exit(), kTimedOut
// when it took longer than `limit` (it is killed). Only for a process without other threads.
Result<std::string> run_isolated(const std::function<std::string()>& work,
                                 std::chrono::milliseconds limit);

// What a program prints, less the end of its last line, which it must write. Its standard error and
// input are /dev/null. Errors as above; kFailed also when there is no such program. Also for a
// process with threads.
Result<std::string> run_isolated_program(const std::vector<std::string>& words,
                                         std::chrono::milliseconds limit);

}  // namespace hora::launcher
