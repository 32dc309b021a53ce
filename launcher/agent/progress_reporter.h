// SPDX-License-Identifier: Apache-2.0
// Tells the launcher how far the ranks of this host have come: the launcher shows it, and takes
// work for a sign of life. Looks often until all ranks have come through a collective, then each
// second. Single-threaded, on the agent's loop.
#pragma once

#include "launcher/agent/flight_records.h"
#include "launcher/agent/launcher_link.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class ProgressReporter {
 public:
  // Borrows all three.
  ProgressReporter(os::EventLoop& loop, LauncherLink& link, const FlightRecords& records)
      : loop_(loop), link_(link), records_(records) {}
  ~ProgressReporter() { stop(); }
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

  void begin(int ranks);
  // No rank is left.
  void stop();

 private:
  void look();

  os::EventLoop& loop_;
  LauncherLink& link_;
  const FlightRecords& records_;
  FlightRecords::Progress sent_;
  int ranks_ = 0;
  int looks_ = 0;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
