// SPDX-License-Identifier: Apache-2.0
// The longest wait of a system call, from a deadline of any value.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "rendezvous/base/time.h"

namespace hora::os {

// Never negative. The least and the greatest deadline mean "no wait" and "for ever", so that the
// difference to now need not fit into a duration.
inline Clock::duration time_until(Deadline deadline) {
  const auto now = Clock::now();
  return deadline <= now ? Clock::duration::zero() : deadline - now;
}

// For poll() and epoll_wait(). Rounded up: a wait that ended before its deadline would spin. At
// most an hour, since an int of milliseconds is full after 24 days: look at the clock afterwards.
inline int milliseconds_until(Deadline deadline) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time_until(deadline)).count();
  return static_cast<int>(std::min<std::int64_t>(ms, 3'600'000));
}

// For ppoll() and futexes.
inline timespec timespec_until(Deadline deadline) {
  const auto left = time_until(deadline);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  return {static_cast<time_t>(seconds.count()),
          static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
}

}  // namespace hora::os
