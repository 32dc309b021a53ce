// SPDX-License-Identifier: Apache-2.0
// Control groups as they look in a container of version 2, on a host of version 1, and without any.
#include "launcher/process/cgroup_limits.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora::launcher;

namespace {

class Tree {
 public:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CgroupLimits limits() const { return cgroup_limits(root_); }

 private:
  hora::test::TemporaryDirectory directory_;
  const std::string root_ = directory_.path();
};

}  // namespace

TEST_CASE("version 2: the least limit of all groups up to the root of the container") {
  Tree tree;
  tree.put("/proc/self/cgroup", "0::/job/step\n");
  tree.put("/proc/self/mountinfo",
           "29 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n");
  tree.put("/sys/fs/cgroup/memory.max", "2147483648\n");
  tree.put("/sys/fs/cgroup/job/memory.max", "8589934592\n");
  tree.put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  tree.put("/sys/fs/cgroup/job/step/pids.max", "300\n");
  tree.put("/sys/fs/cgroup/job/step/cpu.max", "400000 100000\n");
  tree.put("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  tree.put("/sys/fs/cgroup/cpu.max", "max 100000\n");
  const CgroupLimits limits = tree.limits();
  CHECK(limits.memory == 2147483648);
  CHECK(limits.pids == 300);
  CHECK(limits.cpus == 1.5);
  CHECK(limits.path == "/job/step");
}

TEST_CASE("version 1: a folder for each controller, some of them shared") {
  Tree tree;
  tree.put("/proc/self/cgroup",
           "9:pids:/user\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n");
  // Inside the container the mount begins at its own group.
  tree.put("/proc/self/mountinfo",
           "30 29 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
           "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
           "32 30 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
           "33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
           "34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  tree.put("/sys/fs/cgroup/pids/user/pids.max", "max\n");
  const CgroupLimits limits = tree.limits();
  CHECK(limits.memory == 1073741824);
  CHECK_FALSE(limits.pids);
  CHECK(limits.cpus == 0.5);
}

TEST_CASE("groups above a namespace count as far as a mount shows them, others do not") {
  Tree tree;
  tree.put("/proc/self/cgroup", "0::/worker\n");
  tree.put("/proc/self/mountinfo",
           "40 23 0:26 /../.. /outer rw - cgroup2 cgroup rw\n"
           "41 23 0:26 /worker2 /neighbour rw - cgroup2 cgroup rw\n"
           "42 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  tree.put("/outer/cpu.max", "300000 100000\n");
  tree.put("/neighbour/cpu.max", "10000 100000\n");
  CHECK(tree.limits().cpus == 3);
  tree.put("/sys/fs/cgroup/worker/cpu.max", "250000 100000\n");
  CHECK(tree.limits().cpus == 2.5);
}

TEST_CASE("no limits, and no groups at all") {
  Tree tree;
  CHECK_FALSE(tree.limits().memory);
  tree.put("/proc/self/cgroup", "4:memory:/\n0::/\n");
  tree.put("/proc/self/mountinfo",
           "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = tree.limits();
  CHECK_FALSE(limits.memory);
  CHECK_FALSE(limits.pids);
  CHECK_FALSE(limits.cpus);
}
