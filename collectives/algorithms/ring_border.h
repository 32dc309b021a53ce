// SPDX-License-Identifier: Apache-2.0
// From which size on an allreduce takes a ring rather than recursive doubling.  [pure]
//
// The ring waits for the link 2 (n - 1) times and moves each byte 2 (n - 1) / n times; doubling
// waits log2(n) times and moves it log2(n) times. So the farther the ranks are from each other, the
// longer doubling is the better one.
#pragma once

#include <chrono>
#include <cstdint>

namespace hora::collectives {

// Bytes. `round_trip` between ranks, as all of them know it alike; 0: not known.
std::int64_t ring_from(int ranks, std::chrono::microseconds round_trip);

}  // namespace hora::collectives
