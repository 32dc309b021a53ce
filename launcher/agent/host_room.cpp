// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/host_room.h"

#include <sys/resource.h>
#include <unistd.h>

#include "launcher/process/job_cgroup.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// What the smallest process takes in the kernel and of its own: stack, page tables, a few pages.
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
