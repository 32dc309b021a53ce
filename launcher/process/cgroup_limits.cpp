// SPDX-License-Identifier: Apache-2.0
// Reads the limits of our cgroup in both versions of the interface. A limit anywhere between our
// group and the root applies, so the smallest one counts.
#include "launcher/process/cgroup_limits.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// Version 1 writes "no limit" as a page below the largest number.
constexpr std::int64_t kNoLimit = INT64_MAX / 2;

// Empty when it cannot be read.
std::string text_of(const std::string& path) {
  auto text = os::read_file(path);
  return text ? *std::move(text) : std::string();
}

// The name "" means version 2.
using PathByController = std::map<std::string, std::string, std::less<>>;

PathByController own_paths(std::string_view memberships) {
  PathByController paths;
  for (const std::string_view line : split(memberships, '\n')) {
    // "id:controllers:path"; version 2 has no controllers.
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::string path(line.substr(parts[0].size() + parts[1].size() + 2));
    for (const std::string_view controller : split(parts[1], ',')) {
      paths.emplace(controller, path);
    }
  }
  return paths;
}

// The folders of the group `path` and of those above it, as far as a mount that begins at the group
// `mounted` shows them.
std::vector<std::string> folders_of(std::string_view path, std::string_view mounted,
                                    const std::string& mount_point) {
  // "/..": above what this namespace of cgroups shows. A mount from there shows a group above ours;
  // a group of ours there is not below any mount.
  if (mounted.starts_with("/..")) return {mount_point};
  if (path.starts_with("/..")) return {};
  if (mounted == "/") mounted = "";
  const bool is_within =
      path.starts_with(mounted) && (path.size() == mounted.size() || path[mounted.size()] == '/');
  if (!is_within) return {};
  std::vector<std::string> folders;
  for (path.remove_prefix(mounted.size());; path = path.substr(0, path.rfind('/'))) {
    while (path.ends_with('/')) path.remove_suffix(1);
    folders.push_back(mount_point + std::string(path));
    if (path.empty()) return folders;
  }
}

std::optional<std::int64_t> number_in(const std::string& file) {
  const auto value = parse_int<std::int64_t>(trim(text_of(file)));
  // "max" is not a number, and means no limit.
  return value && *value >= 0 && *value <= kNoLimit ? value : std::nullopt;
}

// "QUOTA PERIOD", in microseconds; "max" or -1: no limit.
std::optional<double> share_of(std::string_view text) {
  const auto words = split(trim(text), ' ');
  if (words.size() != 2) return std::nullopt;
  const auto quota = parse_int<std::int64_t>(words[0]);
  const auto period = parse_int<std::int64_t>(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

template <class T>
void take_least(std::optional<T> value, std::optional<T>& least) {
  if (value && (!least || *value < *least)) least = value;
}

void take_controller(std::string_view controller, const std::string& folder, CgroupLimits& limits) {
  if (controller.empty()) {
    take_least(number_in(folder + "/memory.max"), limits.memory);
    take_least(number_in(folder + "/pids.max"), limits.pids);
    take_least(share_of(text_of(folder + "/cpu.max")), limits.cpus);
  } else if (controller == "memory") {
    take_least(number_in(folder + "/memory.limit_in_bytes"), limits.memory);
  } else if (controller == "pids") {
    take_least(number_in(folder + "/pids.max"), limits.pids);
  } else if (controller == "cpu") {
    const std::string quota(trim(text_of(folder + "/cpu.cfs_quota_us")));
    const std::string period(trim(text_of(folder + "/cpu.cfs_period_us")));
    take_least(share_of(quota + " " + period), limits.cpus);
  }
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& root) {
  const PathByController paths = own_paths(text_of(root + "/proc/self/cgroup"));
  CgroupLimits limits;
  // A host may use version 1 for one controller and version 2 for another.
  const auto memory = paths.find(paths.count("memory") > 0 ? "memory" : "");
  if (memory != paths.end()) limits.path = memory->second;
  const std::string mounts = text_of(root + "/proc/self/mountinfo");
  for (const std::string_view line : split(mounts, '\n')) {
    // "ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE OPTIONS"
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    // Between the options and the dash there are any number of fields.
    const auto place = split(line.substr(0, dash), ' ');
    const auto kind = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || kind.size() < 3 || !kind[0].starts_with("cgroup")) continue;
    std::vector<std::string_view> controllers{""};
    if (kind[0] == "cgroup") controllers = split(kind[2], ',');
    for (const std::string_view controller : controllers) {
      const auto path = paths.find(controller);
      if (path == paths.end() || (kind[0] == "cgroup" && controller.empty())) continue;
      for (const std::string& folder :
           folders_of(path->second, place[3], root + std::string(place[4]))) {
        take_controller(controller, folder, limits);
      }
    }
  }
  return limits;
}

}  // namespace hora::launcher
