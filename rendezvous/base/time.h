// SPDX-License-Identifier: Apache-2.0
// The clock of every deadline (monotonic), and units. Pure code receives the time as an argument.
// [pure]
#pragma once

#include <chrono>

namespace hora {

// The clock of every deadline: monotonic. Pure code receives the time as an argument.

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// The units of waits and of reports.

using Milliseconds = std::chrono::milliseconds;

// For reports that show parts of a millisecond.
inline double fractional_ms(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace hora
