// SPDX-License-Identifier: Apache-2.0
// Compares the kernel's counters of out-of-memory kills with their values at the start. This needs
// no privilege, unlike the kernel's log.
#include "launcher/agent/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// Files in /proc and cgroups report no size, so read to the end.
std::string whole(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[4096];
  for (ssize_t got = 1; file.valid() && got > 0;) {
    got = ::read(file.get(), bytes, sizeof bytes);
    if (got > 0) text.append(bytes, static_cast<std::size_t>(got));
  }
  return text;
}

// Returns the number after "name " at the beginning of a line, or -1.
std::int64_t counter(const std::string& text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.size() > name.size() && line.substr(0, name.size()) == name &&
        line[name.size()] == ' ') {
      return parse_int<std::int64_t>(trim(line.substr(name.size()))).value_or(-1);
    }
  }
  return -1;
}

// Only cgroup v2 ("0::path") has memory.events.
std::string own_cgroup() {
  const std::string memberships = whole("/proc/self/cgroup");
  for (const std::string_view line : split(memberships, '\n')) {
    if (line.substr(0, 3) == "0::") return "/sys/fs/cgroup" + std::string(line.substr(3));
  }
  return {};
}

}  // namespace

void OomWatch::begin() {
  begun_ = true;
  cgroup_ = own_cgroup();
  machine_ = counter(whole("/proc/vmstat"), "oom_kill");
  cgroup_kills_ = cgroup_.empty() ? -1 : counter(whole(cgroup_ + "/memory.events"), "oom_kill");
}

std::string OomWatch::verdict() const {
  if (!begun_) return {};
  const std::int64_t in_cgroup =
      cgroup_kills_ < 0 ? -1 : counter(whole(cgroup_ + "/memory.events"), "oom_kill");
  // A kill inside the job's own cgroup is proof; one anywhere on the host is only a hint, and the
  // text says so.
  if (in_cgroup > cgroup_kills_) {
    const std::string limit(trim(whole(cgroup_ + "/memory.max")));
    return "the kernel's out-of-memory killer ended a process in this job's cgroup" +
           (limit.empty() || limit == "max" ? std::string()
                                            : ", whose limit is " + limit + " bytes");
  }
  const std::int64_t on_machine = machine_ < 0 ? -1 : counter(whole("/proc/vmstat"), "oom_kill");
  if (on_machine > machine_) {
    return "the kernel's out-of-memory killer was at work on this host while the rank ran";
  }
  return {};
}

}  // namespace hora::launcher
