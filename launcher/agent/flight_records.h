// SPDX-License-Identifier: Apache-2.0
// What the ranks of this host record while they run, and the reports of their progress to the
// launcher.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/launcher_link.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/contract/flight_record.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The records that the ranks of this host write while they run; they outlive a rank that crashes.
// Memory of the agent without a name in any file system: the ranks reach it through /proc, and it
// is gone with the agent.

class FlightRecords {
 public:
  // A page for each of these ranks, in the order of their local ranks. Where the kernel has no such
  // memory there is no record.
  static FlightRecords create(std::vector<int> ranks);

  // The path that the ranks open; empty: there is none.
  const std::string& path() const { return path_; }
  // "was in allreduce 'grad/7' for 2.1 s": what that rank did until now. Empty: not known.
  std::string last_of(int rank) const;
  // Files that the rank did not write completely, and why. Empty: none.
  std::string lost_of(int rank) const;
  // How long ago that rank left the others by itself; nothing when it did not.
  std::optional<std::chrono::nanoseconds> left_for(int rank) const;
  // What the rank has done until now.
  RankCounters counters_of(int rank) const;
  // Where the rank stands now; nothing when it does not use the runtime.
  std::optional<rendezvous::FlightStanding> standing_of(int rank) const;

  // How far the ranks of this host have come in joining the job.
  struct Progress {
    int meeting = 0;                // have begun to meet the others
    int joined = 0;                 // ... and have met them
    int worked = 0;                 // ... and have come through a collective
    std::uint64_t collectives = 0;  // of all of them
    friend bool operator==(const Progress&, const Progress&) = default;
  };
  Progress progress() const;

  // Native stacks (rendezvous/contract/stack_record.h). begin_stacks() answers the number of the
  // new request; nothing when that process offers none. What its threads have written since is read
  // by read_stacks().
  struct NativeStack {
    std::uint32_t tid = 0;
    std::uint64_t thread_id = 0;
    std::vector<std::uint64_t> pcs;
  };
  std::optional<std::uint64_t> begin_stacks(pid_t pid);
  std::vector<NativeStack> read_stacks(pid_t pid, std::uint64_t request) const;

 private:
  std::string copy_of(int page) const;
  std::string settled(int page, std::string bytes) const;
  std::string page_of(int rank) const;
  std::optional<off_t> stacks_of(pid_t pid) const;

  os::Fd fd_;
  int pages_ = 0;
  std::vector<int> ranks_;  // that are expected on the pages
  std::string path_;
};

// Reports to the launcher how far the ranks of this host are: the launcher shows it, and counts
// progress as a sign of life. Looks often until all ranks have come through a collective, then each
// second. Single-threaded, on the agent's loop.

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
