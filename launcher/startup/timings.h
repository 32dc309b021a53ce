// SPDX-License-Identifier: Apache-2.0
// When each phase of a launch was reached: what --timings prints. One thread at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class Timings {
 public:
  Timings() : start_(Clock::now()) {}

  Clock::time_point start() const { return start_; }
  void mark(std::string phase) { marks_.emplace_back(std::move(phase), Clock::now()); }
  const std::vector<std::pair<std::string, Clock::time_point>>& marks() const { return marks_; }
  // One line per phase: milliseconds since the start, since the phase before, name.
  std::string text() const;

 private:
  Clock::time_point start_;
  std::vector<std::pair<std::string, Clock::time_point>> marks_;
};

}  // namespace hora::launcher
