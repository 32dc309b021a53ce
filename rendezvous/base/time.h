// The clock of every deadline. A time point is an argument in pure code, never asked for there.
#pragma once

#include <chrono>

namespace hora {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

}  // namespace hora
