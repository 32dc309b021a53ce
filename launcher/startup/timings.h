// SPDX-License-Identifier: Apache-2.0
// When each phase of a launch was reached: what --timings prints.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class Timings {
 public:
  Timings() : start_(os::Clock::now()) {}

  os::Clock::time_point start() const { return start_; }
  void mark(std::string phase) { marks_.emplace_back(std::move(phase), os::Clock::now()); }
  const std::vector<std::pair<std::string, os::Clock::time_point>>& marks() const { return marks_; }
  // One line per phase: milliseconds since the start, since the phase before, name.
  std::string text() const;

 private:
  os::Clock::time_point start_;
  std::vector<std::pair<std::string, os::Clock::time_point>> marks_;
};

}  // namespace hora::launcher
