// SPDX-License-Identifier: Apache-2.0
// A cgroup v2 of the job's own, where the machine lets us make one: everything that a rank starts
// is born in it and cannot leave it unnoticed, and one write ends all of it at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Where the cgroup v2 tree is mounted, and which of its directories is ours, from the texts of
// /proc/self/mountinfo and /proc/self/cgroup. Hybrid layouts and containers are usual. Empty: there
// is none.  [pure]
std::string own_cgroup_directory(std::string_view mountinfo, std::string_view cgroup);

class JobCgroup {
 public:
  // A child of our own cgroup; nothing when that is not permitted, which is usual without root.
  // Its name is "hora-" and `word`.
  static std::optional<JobCgroup> create(std::string_view word);

  int fd() const { return directory_.get(); }
  const std::string& path() const { return path_; }
  // Others in the same folder that jobs have left. Takes a while where there are many.
  void remove_abandoned() const;
  void kill() const;  // SIGKILL to all, forks included
  // When nothing lives in it; else it stays, which is not an error: a later job removes it.
  void remove();

 private:
  JobCgroup(std::string path, os::Fd directory)
      : path_(std::move(path)), directory_(std::move(directory)) {}
  std::string path_;
  os::Fd directory_;
};

// For the shim when only the path is left: ends everything in it, and removes it.
void kill_cgroup(const char* path);
void remove_cgroup(const char* path);

// How Linux < 5.14, which cannot kill a cgroup at once, does it (>= 5.2): nothing forks while all
// processes are frozen. `directory` is the cgroup's.
void kill_frozen(int directory);

}  // namespace hora::launcher
