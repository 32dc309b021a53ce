// SPDX-License-Identifier: Apache-2.0
// The limits of this process's control groups, of version 2 or 1 or a mixture, as containers and
// job systems set them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hora::launcher {

struct CgroupLimits {
  std::string path;  // of the group that limits memory, as /proc/self/cgroup has it
  std::optional<std::int64_t> memory;  // bytes
  std::optional<std::int64_t> pids;
  std::optional<double> cpus;  // the quota: 1.5 are three CPUs for half of the time
};

// The tightest of all groups from ours up to the root; unset: no limit is seen. Everything is read
// below `root`, which is "" but in tests.
CgroupLimits cgroup_limits(const std::string& root);

}  // namespace hora::launcher
