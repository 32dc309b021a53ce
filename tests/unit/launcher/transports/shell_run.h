// SPDX-License-Identifier: Apache-2.0
// Runs a program with given bytes on its stdin, for tests that need a real shell.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace hora::test {

struct ShellRun {
  std::string out;
  std::string err;
  int exit_code = -1;  // 128 + signal when killed
  bool timed_out = false;
};

// argv[0] is searched in PATH. `environment` replaces the caller's, when given.
ShellRun run_program(const std::vector<std::string>& argv, const std::string& input = {},
                     const std::optional<std::vector<std::string>>& environment = std::nullopt,
                     std::chrono::milliseconds limit = std::chrono::seconds(20));

// The command prefixes ("dash", "-c") of every login shell that this machine has; sh always.
std::vector<std::vector<std::string>> shells_here(bool posix_only);

}  // namespace hora::test
