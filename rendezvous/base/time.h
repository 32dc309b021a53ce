// SPDX-License-Identifier: Apache-2.0
// The clock of every deadline: monotonic. Pure code receives the time as an argument.  [pure]
#pragma once

#include <chrono>

namespace hora {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

}  // namespace hora
