// The processes of a job that are not ranks (any more): what ranks started and left behind.
// A subreaper is an ancestor of all of them for as long as it lives, however often they fork and
// setsid; what an outside daemon started on a rank's behalf still carries the environment's mark.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/process/process_table.h"

namespace hora::launcher {

struct StrayScope {
  ProcessEntry root;         // the subreaper: this very process
  std::string mark;          // "NAME=VALUE"; empty: only descendants
  std::vector<pid_t> spare;  // never ours to end: the shim
};

// Lives on, and is not a zombie.
std::vector<ProcessEntry> find_strays(const StrayScope& scope);

// Reaps every child that has ended. True when no child is left, not even a living one: then there
// is no descendant either. For a process that keeps no other account of its children.
bool reap_all_children();

// SIGKILL to everything in the scope and whatever it forks meanwhile, until nothing is left or the
// time is up. Returns what could not be ended. SIGCHLD must be blocked.
std::vector<ProcessEntry> kill_strays(const StrayScope& scope, const char* cgroup_path,
                                      std::chrono::milliseconds patience);

}  // namespace hora::launcher
