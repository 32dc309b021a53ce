// SPDX-License-Identifier: Apache-2.0
// A program that is asked something and may crash, hang or never end.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace hora::doctor {

struct Answer {
  int exit_code = -1;  // -1: did not start, was killed, or ran out of time
  int signal = 0;      // that ended it; not ours
  bool timed_out = false;
  std::string output;  // stdout, at most 256 KiB
  std::string errors;  // the end of stderr, at most 4 KiB
};

using EnvironmentList = std::vector<std::pair<std::string, std::string>>;

// Runs a program, from PATH unless it has a slash, with /dev/null as input; kills it and its
// process group when time is up. `environment` is added to our own, without those of our variables
// that `drop` begins with.
Answer ask(const std::vector<std::string>& command, std::chrono::milliseconds timeout,
           const EnvironmentList& environment = {}, const std::vector<std::string>& drop = {});

}  // namespace hora::doctor
