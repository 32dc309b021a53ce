// SPDX-License-Identifier: Apache-2.0
// The faults that --chaos injects, so that users can test how their programs react.  [pure]
//
// Grammar (docs/reference/cli.md): items separated by commas;
//   item := ("kill" | "term" | "stop") ":" (rank | host) "@" time ["+" duration]
// Times count from the moment when all ranks run. Only stop has a duration; without one the rank
// stays stopped until the job ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct Plan;

struct ChaosAct {
  int signal = 0;
  std::string target;      // digits: a rank; else a host, by the name that the job knows it by
  std::size_t offset = 0;  // of the target in the text, for messages
  std::chrono::milliseconds at{0};
  std::optional<std::chrono::milliseconds> duration;  // SIGCONT after it
  friend bool operator==(const ChaosAct&, const ChaosAct&) = default;
};

struct ChaosSpec {
  std::string text;  // as the user wrote it
  std::vector<ChaosAct> acts;
};

// One signal to one rank.
struct ChaosStep {
  std::chrono::milliseconds at{0};
  int host = 0;  // of the plan
  int rank = 0;
  int signal = 0;
  friend bool operator==(const ChaosStep&, const ChaosStep&) = default;
};

// A step that was taken.
struct ChaosStrike {
  std::chrono::milliseconds at{0};  // when it really was
  std::string host;
  int rank = 0;
  int signal = 0;
  bool sent = true;  // false: the rank had ended, or its host was lost
};

// Errors (kUsage) say the column and what was expected there.
Result<ChaosSpec> parse_chaos(std::string_view text);

// By time; of one time as they were written. Errors (kUsage): ranks and hosts that the plan lacks.
Result<std::vector<ChaosStep>> schedule_chaos(const ChaosSpec& spec, const Plan& plan);

}  // namespace hora::launcher
