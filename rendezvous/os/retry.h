// SPDX-License-Identifier: Apache-2.0
// Tries again what the kernel refuses for the moment.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "rendezvous/base/time.h"

namespace hora::os {

// Calls `attempt`, which returns 0 or an errno, until it returns something other than EAGAIN or the
// deadline has passed; returns its last answer. This is for resources that the whole machine
// shares: threads, ports, routes. No descriptor becomes ready when one is free, so the caller
// pauses, a millisecond at first and at most a tenth of a second.
template <typename Attempt>
int retry_while_refused(Attempt&& attempt, Deadline deadline) {
  constexpr std::chrono::milliseconds kLongestPause{100};
  std::chrono::milliseconds pause{1};
  for (;;) {
    const int refused = attempt();
    if (refused != EAGAIN) return refused;
    const auto now = Clock::now();
    if (now >= deadline) return refused;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace hora::os
