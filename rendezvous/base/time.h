// SPDX-License-Identifier: Apache-2.0
// The clock of every deadline (monotonic), and units. Pure code receives the time as an argument.
// [pure]
#pragma once

#include <chrono>
#include <cstdint>

namespace hora {

// The clock of every deadline: monotonic. Pure code receives the time as an argument.

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// The units of waits and of reports.

using Milliseconds = std::chrono::milliseconds;

// Since the clock's epoch.
inline std::int64_t nanoseconds_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// For reports that show parts of a millisecond.
inline double fractional_ms(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace hora
