// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/host_capacity.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

#include "launcher/process/job_cgroup.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

// Reads the kernel's view of CPUs, cores and NUMA nodes from sysfs, limited to the CPUs that this
// process may use (a container's or a batch system's share).

namespace {

std::string line_in(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof text) : 0;
  return got <= 0 ? "" : std::string(trim({text, static_cast<std::size_t>(got)}));
}

int number_in(const std::string& path, int otherwise) {
  return parse_int<int>(line_in(path)).value_or(otherwise);
}

// The first CPU of those that share the level 3 cache of this one: the list "8-15" begins with it.
// Caches have numbers of their own only since Linux 4.11.
int l3_of(const std::string& folder) {
  constexpr int kMostCaches = 16;
  for (int index = 0; index < kMostCaches; ++index) {
    const std::string cache = folder + "/cache/index" + std::to_string(index);
    const int level = number_in(cache + "/level", 0);
    if (level == 0) break;
    if (level != 3) continue;
    const std::string list = line_in(cache + "/shared_cpu_list");
    return parse_int<int>(list.substr(0, list.find_first_of("-,"))).value_or(-1);
  }
  return -1;
}

// One file instead of a directory for each CPU, on most machines.
bool has_numa() {
  const std::string online = line_in("/sys/devices/system/node/online");
  return !online.empty() && online != "0";
}

// A CPU's directory has an entry "nodeN" for its NUMA node. Machines without NUMA have none.
int node_of(const std::string& folder) {
  for (const std::string& name : os::names_in(folder)) {
    if (!name.starts_with("node")) continue;
    if (const auto node = parse_int<int>(std::string_view(name).substr(4))) return *node;
  }
  return 0;
}

}  // namespace

std::vector<CpuPlace> usable_cpu_places(CpuDetail detail) {
  std::vector<CpuPlace> places;
  const CpuMask mask = cpu_mask_of_this_thread();
  const bool numa = has_numa();
  const bool each_is_a_core =
      detail == CpuDetail::kCounts && line_in("/sys/devices/system/cpu/smt/active") == "0";
  const std::size_t most = mask.size() * 8 * sizeof mask[0];
  for (std::size_t cpu = 0; cpu < most; ++cpu) {
    if (!has_cpu(mask, cpu)) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    CpuPlace place;
    place.cpu = static_cast<int>(cpu);
    place.core = place.cpu;
    if (!each_is_a_core) {
      place.package = number_in(folder + "/topology/physical_package_id", 0);
      // core_id is only unique within one package.
      place.core = place.package * 100'000 + number_in(folder + "/topology/core_id", place.cpu);
    }
    if (numa) place.node = node_of(folder);
    if (detail == CpuDetail::kCaches) place.l3 = l3_of(folder);
    places.push_back(place);
  }
  return places;
}

// The mask of the calling thread is inherited by the child that it spawns; the destructor restores
// it.
AffinityScope::AffinityScope(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  before_ = cpu_mask_of_this_thread();
  if (before_.empty()) return;
  changed_ = set_cpu_mask(0, mask_of(cpus, before_));
}

AffinityScope::~AffinityScope() {
  if (changed_) (void)set_cpu_mask(0, before_);
}

namespace {

// The memory of the smallest process, in the kernel and its own: stack, page tables, a few pages.
constexpr std::int64_t kLeastOfProcess = 64 * 1024;

// Nothing where the file is not there or holds "max".
void add_limit(const std::string& file, const std::string& name, HostRoom& room) {
  const auto text = os::read_file(file);
  if (!text) return;
  const auto most = parse_int<std::int64_t>(trim(*text));
  if (most) room.limits.push_back({*most, name});
}

// Our cgroup of the controller for processes where the tree is that of version 1; empty: none.
std::string old_cgroup_directory(std::string_view memberships) {
  for (const std::string_view line : split(memberships, '\n')) {
    const std::size_t place = line.find(":pids:");
    if (place != std::string_view::npos) {
      return "/sys/fs/cgroup/pids" + std::string(line.substr(place + 6));
    }
  }
  return {};
}

// Each cgroup above ours limits us, too.
void add_cgroup_limits(HostRoom& room) {
  const auto mounts = os::read_file("/proc/self/mountinfo");
  const auto memberships = os::read_file("/proc/self/cgroup");
  if (!mounts || !memberships) return;
  for (std::string folder :
       {own_cgroup_directory(*mounts, *memberships), old_cgroup_directory(*memberships)}) {
    while (!folder.empty()) {
      const std::string file = folder + "/pids.max";
      add_limit(file, file, room);
      folder.resize(folder.rfind('/'));
    }
  }
}

}  // namespace

HostRoom read_host_room() {
  HostRoom room;
  add_limit("/proc/sys/kernel/pid_max", "sysctl kernel.pid_max", room);
  add_limit("/proc/sys/kernel/threads-max", "sysctl kernel.threads-max", room);
  add_cgroup_limits(room);
  rlimit limit{};
  // The kernel does not hold root to it.
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    room.limits.push_back({static_cast<std::int64_t>(limit.rlim_cur), "ulimit -u"});
  }
  if (const auto meminfo = os::read_file("/proc/meminfo")) room.memory_bytes = memory_of(*meminfo);
  return room;
}

std::optional<Lack> find_lack(std::size_t ranks, const HostRoom& room) {
  const auto count = static_cast<std::int64_t>(ranks);
  const std::string begin = std::to_string(ranks) + " ranks need ";
  for (const ProcessLimit& limit : room.limits) {
    if (count < limit.most) continue;
    return Lack{begin + "as many processes, and the limit is " + std::to_string(limit.most) + " (" +
                    limit.name + ")",
                "raise the limit there, or start fewer ranks on this host"};
  }
  const std::int64_t needed = count * kLeastOfProcess;
  if (room.memory_bytes > 0 && needed > room.memory_bytes) {
    return Lack{begin + std::to_string(needed >> 20) +
                    " MiB of memory at least, and the host has " +
                    std::to_string(room.memory_bytes >> 20) + " MiB",
                "start fewer ranks on this host"};
  }
  return std::nullopt;
}

std::int64_t memory_of(std::string_view meminfo) {
  std::int64_t kilobytes = 0;
  for (const std::string_view line : split(meminfo, '\n')) {
    for (const std::string_view name : {"MemTotal:", "SwapTotal:"}) {
      if (!line.starts_with(name)) continue;
      const std::string_view number = trim(line.substr(name.size()));
      kilobytes += parse_int<std::int64_t>(number.substr(0, number.find(' '))).value_or(0);
    }
  }
  return kilobytes * 1024;
}

}  // namespace hora::launcher
