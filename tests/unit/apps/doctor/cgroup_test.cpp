// SPDX-License-Identifier: Apache-2.0
// Control groups as they look in a container of version 2, on a host of version 1, and without any.
#include "apps/doctor/cgroup.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora::doctor;

namespace {

class Tree {
 public:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Json facts() const { return cgroup_facts(root_); }

 private:
  hora::test::TemporaryDirectory directory_;
  const std::string root_ = directory_.path();
};

}  // namespace

TEST_CASE("version 2: the least limit of all groups up to the root of the container") {
  Tree tree;
  tree.put("/proc/self/cgroup", "0::/job/step\n");
  tree.put("/proc/self/mounts", "cgroup /sys/fs/cgroup cgroup2 ro,nosuid 0 0\n");
  tree.put("/sys/fs/cgroup/memory.max", "2147483648\n");
  tree.put("/sys/fs/cgroup/job/memory.max", "8589934592\n");
  tree.put("/sys/fs/cgroup/job/step/memory.max", "max\n");
  tree.put("/sys/fs/cgroup/job/step/pids.max", "300\n");
  tree.put("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  tree.put("/sys/fs/cgroup/cpu.max", "max 100000\n");
  const Json facts = tree.facts();
  CHECK(facts["memory_max"] == 2147483648);
  CHECK(facts["pids_max"] == 300);
  CHECK(facts["cpus"] == 1.5);
  CHECK(facts["path"] == "/job/step");
}

TEST_CASE("version 1: a folder for each controller, some of them shared") {
  Tree tree;
  tree.put("/proc/self/cgroup",
           "9:pids:/user\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n");
  tree.put("/proc/self/mounts",
           "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
           "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
           "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
           "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
           "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
  // Inside the container the mount begins at its own group.
  tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  tree.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  tree.put("/sys/fs/cgroup/pids/user/pids.max", "max\n");
  const Json facts = tree.facts();
  CHECK(facts["memory_max"] == 1073741824);
  CHECK(facts["pids_max"] == -1);
  CHECK(facts["cpus"] == 0.5);
}

TEST_CASE("no limits, and no groups at all") {
  Tree tree;
  CHECK(tree.facts()["memory_max"] == -1);
  tree.put("/proc/self/cgroup", "4:memory:/\n0::/\n");
  tree.put("/proc/self/mounts", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n");
  tree.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const Json facts = tree.facts();
  CHECK(facts["memory_max"] == -1);
  CHECK(facts["pids_max"] == -1);
  CHECK(facts["cpus"] == 0);
}
