// SPDX-License-Identifier: Apache-2.0
// An elastic job in a world of its own: virtual time, hosts that come, go, fail and flap, agents
// and ranks that are slow, hang and die. What must hold is checked at every step.
#pragma once

#include <cstdint>
#include <string>

namespace hora::launcher::elastic {

struct SimulationResult {
  std::string violation;  // empty: everything held
  int epochs = 0;
  int faults = 0;
  bool succeeded = false;
  std::string end;    // why the job ended
  std::string story;  // what happened, one line per event
};

SimulationResult simulate(std::uint64_t seed, bool keep_story = false);

}  // namespace hora::launcher::elastic
