// SPDX-License-Identifier: Apache-2.0
// The units of waits and of reports.  [pure]
#pragma once

#include "rendezvous/base/time.h"

namespace hora {

using Milliseconds = std::chrono::milliseconds;

// For reports that show parts of a millisecond.
inline double fractional_ms(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace hora
