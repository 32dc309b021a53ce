// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/job_cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kNamePrefix = "hora-";

// Empty when it cannot be read.
std::string read_small_file(int directory, const char* name) {
  const os::Fd file(::openat(directory, name, O_RDONLY | O_CLOEXEC));
  auto text = os::read_to_end(file.get(), name);
  return text ? *std::move(text) : std::string();
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// False when there is no such file, or the kernel does not take it.
bool write_one(int directory, const char* name, char what) {
  const os::Fd file(::openat(directory, name, O_WRONLY | O_CLOEXEC));
  return file.valid() && ::write(file.get(), &what, 1) == 1;
}

// The sweep finds any remaining ones.
void kill_all_in(int directory) {
  if (!write_one(directory, "cgroup.kill", '1')) kill_frozen(directory);
}

std::string_view take_word(std::string_view& line) {
  const std::size_t end = line.find(' ');
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  return word;
}

// mountinfo writes a blank as \040, and so on.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                      (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string_view own_cgroup(std::string_view memberships) {
  while (!memberships.empty()) {
    const std::string_view line = take_line(memberships);
    if (line.substr(0, 3) != "0::") continue;
    const std::string_view ours = line.substr(3);
    // "/../x": our cgroup lies outside the namespace that we see, no path leads there.
    const bool leads =
        !ours.empty() && ours.front() == '/' && ours.find("/..") == std::string_view::npos;
    return leads ? ours : std::string_view();
  }
  return {};
}

// Where distributions mount it, which needs no look at all mounts. A container may see only the
// part of the tree below its own cgroup there: then no folder has our name, as a rule.
std::string usual_cgroup_directory(std::string_view memberships) {
  constexpr long kCgroup2 = 0x63677270;  // CGROUP2_SUPER_MAGIC
  const std::string_view ours = own_cgroup(memberships);
  if (ours.empty()) return {};
  for (const std::string_view place : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    std::string path = std::string(place).append(ours == "/" ? "" : ours);
    struct statfs info {};
    if (::statfs(path.c_str(), &info) == 0 && info.f_type == kCgroup2) return path;
  }
  return {};
}

// Of jobs that left a process in the kernel's hands, or whose agent and shim were killed
// together: empty by now. A young one may be about to get its first rank.
void remove_abandoned_in(const std::string& parent) {
  constexpr time_t kYoungSeconds = 600;
  for (const std::string& name : os::names_in(parent)) {
    const std::string path = parent + "/" + name;
    struct stat info {};
    if (!name.starts_with(kNamePrefix) || ::stat(path.c_str(), &info) != 0) continue;
    if (info.st_ctime + kYoungSeconds > ::time(nullptr)) continue;
    ::rmdir(path.c_str());  // fails while it is in use
  }
}

}  // namespace

std::string own_cgroup_directory(std::string_view mountinfo, std::string_view cgroup) {
  const std::string_view ours = own_cgroup(cgroup);
  if (ours.empty()) return {};
  while (!mountinfo.empty()) {
    std::string_view line = take_line(mountinfo);
    const std::size_t type = line.find(" - ");
    if (type == std::string_view::npos || line.substr(type + 3, 8) != "cgroup2 ") continue;
    for (int skipped = 0; skipped < 3; ++skipped) take_word(line);  // id, parent, device
    const std::string root = unescape(take_word(line));
    std::string mount_point = unescape(take_word(line));
    // A container may see only the part of the tree below `root`.
    if (root == "/") return mount_point + (ours == "/" ? "" : std::string(ours));
    if (ours.substr(0, root.size()) == root) {
      return mount_point + std::string(ours.substr(root.size()));
    }
    return mount_point;
  }
  return {};
}

std::optional<JobCgroup> JobCgroup::create(std::string_view word) {
  // With systemd that is the cgroup of the session or the service. A plain user may write there
  // only where it was delegated; all that this class gives is optional, therefore any failure
  // means: do without.
  const std::string memberships = read_small_file(AT_FDCWD, "/proc/self/cgroup");
  std::string parent = usual_cgroup_directory(memberships);
  if (parent.empty()) {
    parent = own_cgroup_directory(read_small_file(AT_FDCWD, "/proc/self/mountinfo"), memberships);
  }
  if (parent.empty()) return std::nullopt;
  std::string path = parent + "/" + std::string(kNamePrefix).append(word);
  if (::mkdir(path.c_str(), 0700) != 0) return std::nullopt;
  os::Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || ::faccessat(directory.get(), "cgroup.procs", W_OK, 0) != 0) {
    ::rmdir(path.c_str());
    return std::nullopt;
  }
  return JobCgroup(std::move(path), std::move(directory));
}

void JobCgroup::remove_abandoned() const { remove_abandoned_in(path_.substr(0, path_.rfind('/'))); }

void JobCgroup::kill() const { kill_all_in(directory_.get()); }

void JobCgroup::remove() {
  directory_.reset();
  if (!path_.empty()) remove_cgroup(path_.c_str());
  path_.clear();
}

void remove_cgroup(const char* path) {
  // The kernel may let go of a process a moment after it was reaped.
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (::rmdir(path) == 0 || errno != EBUSY) return;
    const std::string events =
        read_small_file(AT_FDCWD, (std::string(path) + "/cgroup.events").c_str());
    // Populated at the second look: something lives in it, waiting does not help.
    if (attempt > 0 && events.find("populated 1") != std::string::npos) return;
    ::poll(nullptr, 0, 1);
  }
}

void kill_cgroup(const char* path) {
  os::Fd directory(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) kill_all_in(directory.get());
}

void kill_frozen(int directory) {
  constexpr int kLooks = 100;
  // Killing one by one without this is a race that a process which keeps forking wins. In cgroup v2
  // SIGKILL ends a frozen process at once, not only after the thaw.
  if (!write_one(directory, "cgroup.freeze", '1')) return;
  for (int look = 0; look < kLooks; ++look) {  // a process in the kernel may keep the rest waiting
    if (read_small_file(directory, "cgroup.events").find("frozen 1") != std::string::npos) break;
    ::poll(nullptr, 0, 1);
  }
  const std::string members = read_small_file(directory, "cgroup.procs");
  std::string_view rest(members);
  while (!rest.empty()) {
    const auto pid = parse_int<pid_t>(take_line(rest));
    if (pid && *pid > 0) ::kill(*pid, SIGKILL);  // 0: in a namespace that we do not see
  }
  (void)write_one(directory, "cgroup.freeze", '0');
}

}  // namespace hora::launcher
