// SPDX-License-Identifier: Apache-2.0
// Finds and ends processes that the ranks of a job left behind, and counts them. A stray is a
// descendant of this process, which is their subreaper, or carries the job's mark in its
// environment. Strays fork and exit while they are looked for, so each step says whether it has
// caught up with them. The owner decides when to look, to kill and to give up.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process/job_cgroup.h"
#include "launcher/process/strays.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// Children of this process that are not strays: another class ends and reaps them.
struct SparedProcesses {
  std::vector<pid_t> ranks;  // that live
  pid_t server = -1;         // that serves PMI; -1: none
};

class StrayHunt {
 public:
  explicit StrayHunt(std::string mark);
  const std::string& mark() const { return scope_.mark; }

  // A look at the whole machine. Ends this process when there are no resources for it: the shim has
  // its own, and ends the job then.
  std::vector<ProcessEntry> find(const SparedProcesses& spared) const;
  // No child is left but living ranks; `seen` is what find() has returned just now.
  bool is_clean(const std::vector<ProcessEntry>& seen, const SparedProcesses& spared) const;

  // TERM to those whose group has not had it yet.
  void terminate(const std::vector<ProcessEntry>& seen, const std::set<pid_t>& termed_groups);
  // KILL to everything that can be found in a short time. The look at the whole machine is slow:
  // once, and not while a chase goes on.
  void kill(const SparedProcesses& spared, JobCgroup* cgroup);
  // False: a process forks faster than kill() kills, so there may be more than find() can see.
  bool caught_up() const { return caught_up_; }

  // The remaining ones are not waited for.
  void give_up(const std::vector<ProcessEntry>& seen, const SparedProcesses& spared);
  // The account for the launcher, with ranks that could not be ended either.
  Goodbye account(const std::vector<pid_t>& living_ranks) const;

 private:
  std::optional<std::vector<pid_t>> children_but_ranks(const SparedProcesses& spared) const;
  void remember_killed(const std::vector<ProcessEntry>& strays);

  StrayScope scope_;
  bool looked_ = false;     // kill() has looked at the whole machine
  bool caught_up_ = true;   // no process forks faster than we kill
  bool uncounted_ = false;  // a process survives that could not even be listed
  std::set<std::pair<pid_t, std::uint64_t>> killed_;
  std::vector<std::int64_t> survivors_;
};

}  // namespace hora::launcher
