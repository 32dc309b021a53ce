// SPDX-License-Identifier: Apache-2.0
// The processes of a job that are not ranks (any more): those that ranks started and left running.
// A subreaper is an ancestor of all of them for as long as it lives, however often they fork and
// setsid; a process that an outside daemon started for a rank still carries the environment's mark.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/process_table.h"

namespace hora::launcher {

struct StrayScope {
  ProcessEntry root;         // the subreaper: this very process
  std::string mark;          // "NAME=VALUE"; empty: only descendants
  std::vector<pid_t> spare;  // children of the root that another class ends and reaps
};

// The living ones. Read process by process: one that forks and ends meanwhile may be missed, and
// its child, too. Nothing when the table of processes cannot be read (list_processes()).
std::optional<std::vector<ProcessEntry>> find_strays(const StrayScope& scope);

// Reaps every child that has ended. True when no child is left, not even a living one: then there
// is no descendant either. For a process that keeps no other account of its children.
bool reap_all_children();

struct Chase {
  std::vector<ProcessEntry> killed;
  bool caught_up = false;  // the last look found no new one
};

// SIGKILL to descendants as fast as they can be found, from child to child and without a look at
// the whole machine, for as long as each look finds a new one: a process that forks and ends over
// and over is gone before find_strays() reaches it. Reaps those that have ended and are not spared.
Chase chase_descendants(const StrayScope& scope, std::chrono::milliseconds timeout);

struct StraysLeft {
  bool none = true;                // no child is left, and none was found
  std::vector<ProcessEntry> seen;  // of those that are left
};

// SIGKILL to everything in the scope and whatever it forks meanwhile, until nothing is left or the
// time is up. SIGCHLD must be blocked.
StraysLeft kill_strays(const StrayScope& scope, const char* cgroup_path,
                       std::chrono::milliseconds timeout);

// The same to every process with the mark, for one that is not their ancestor and reaps none of
// them. False: some may be left.
bool kill_marked(const std::string& mark, std::chrono::milliseconds timeout);

}  // namespace hora::launcher
