// What is installed here, by asking it: Python and its frameworks, the GPU driver, the C library.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "facts.h"

namespace hora::doctor {

struct Answer {
  int exit_code = -1;  // -1: did not start, was killed, or ran out of time
  bool timed_out = false;
  std::string output;  // stdout, at most 256 KiB
};

// Runs a program from PATH with /dev/null as input; kills it when time is up. stderr is thrown away.
Answer ask(const std::vector<std::string>& command, std::chrono::milliseconds patience);

// With `deep` every framework is imported and does a tiny operation; else only its version is read.
Json software_facts(bool deep, std::chrono::milliseconds patience);

}  // namespace hora::doctor
