// SPDX-License-Identifier: Apache-2.0
// How long to wait before the next attempt at a server that is too busy.  [pure]
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace hora::launcher {

// The pause grows with each attempt and has a random part, which keeps a thousand hosts behind one
// gateway from coming back together.
class BackOff {
 public:
  // Launchers that start in the same second need different seeds.
  explicit BackOff(unsigned seed) : random_(seed) {}

  void count_attempt() { ++attempts_; }
  int attempts() const { return attempts_; }

  std::chrono::milliseconds next_pause() {
    const int doublings = std::clamp(attempts_ - 1, 0, 5);
    const auto longest = std::min(kLongest, kFirst * (1 << doublings));
    return longest / 2 +
           std::chrono::milliseconds(random_() % static_cast<unsigned>(longest.count()));
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kLongest{2'000};
  std::minstd_rand random_;
  int attempts_ = 0;
};

}  // namespace hora::launcher
