// SPDX-License-Identifier: Apache-2.0
// Watches what some ranks have asked for and others not: after a while it reports which are
// missing, and what they did last. Of the coordinator. [pure]
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "collectives/negotiation/coordinator.h"

namespace hora::collectives {

class StallInspector {
 public:
  using TimePoint = Coordinator::TimePoint;

  struct Options {
    bool enabled = true;
    std::chrono::seconds warning{60};  // at least 1 is taken
    std::chrono::seconds shutdown{0};  // 0: never; below `warning` it is ignored
  };
  struct Report {
    std::string warning;                // empty: nothing is worth one
    std::string fatal;                  // not empty: the job is to end, for this reason
    std::vector<std::int32_t> missing;  // the ranks in the text
  };

  explicit StallInspector(Options options);

  // The problem of the options; empty: none.
  std::string complaint() const;
  // After how long a report is due, and again; 0: never.
  std::chrono::seconds warning() const {
    return options_.enabled ? options_.warning : std::chrono::seconds(0);
  }
  // After how long the job is to end; 0: never.
  std::chrono::seconds limit() const {
    return options_.enabled ? options_.shutdown : std::chrono::seconds(0);
  }
  // When to check again, if anything is waiting then. TimePoint::max(): never.
  TimePoint next_check() const { return next_check_; }
  Report check(const Coordinator& coordinator, TimePoint now);

 private:
  using Waiting = Coordinator::Waiting;

  std::string list_missing(const Coordinator& coordinator, const std::vector<Waiting>& waiting,
                           TimePoint now) const;

  Options options_;
  bool shutdown_ignored_;
  TimePoint next_check_;
};

}  // namespace hora::collectives
