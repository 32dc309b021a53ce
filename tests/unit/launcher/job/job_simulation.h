// SPDX-License-Identifier: Apache-2.0
// A job on paper: the real JobState, hosts and network that are made of random numbers, and a clock
// that jumps from event to event. A seed is a whole life; the same seed is the same life.
#pragma once

#include <cstdint>
#include <string>

namespace hora::launcher::simulation {

struct SimulationResult {
  std::string broken;   // the invariant that did not hold, with what happened; empty: all held
  std::string history;  // every event and action, when asked for
  std::string fault;    // the first failure
  bool failed = false;  // the job, of that or whatever else
  int events = 0;
};

// Lives the seed's life to its end, and looks on every step whether
//   - the job is over by its deadline, and says so once;
//   - orders go out in their order, none behind the end, none to a host that was let go;
//   - every host that could run something is asked to end or is let go, and nothing runs on any
//     host in the end;
//   - the exit code is 0 if and only if every rank has succeeded, else it is that of the cause;
//   - where one thing went wrong, that is the cause, whatever followed from it.
SimulationResult live(std::uint64_t seed, bool with_history = false);

}  // namespace hora::launcher::simulation
