// SPDX-License-Identifier: Apache-2.0
// Whether the kernel has killed processes for lack of memory since begin(): its counters, since
// nobody else tells the one that was killed. Reads a few files of /proc and /sys,
// which never wait. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

namespace hora::launcher {

class OomWatch {
 public:
  void begin();
  // Explains a rank that a foreign SIGKILL ended; empty if no counter has changed, or before
  // begin().
  std::string verdict() const;

 private:
  bool begun_ = false;
  std::string cgroup_;         // our own cgroup v2 folder; empty: none
  std::int64_t machine_ = -1;  // -1: cannot be read
  std::int64_t cgroup_kills_ = -1;
};

}  // namespace hora::launcher
