// SPDX-License-Identifier: Apache-2.0
// Reads the limits of our cgroup in both versions of the interface. A limit anywhere between our
// group and the root applies, so the smallest one counts.
#include "cgroup.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "rendezvous/base/text.h"

namespace hora::doctor {

namespace {

// Version 1 writes "no limit" as a page below the largest number.
constexpr std::int64_t kNoLimit = INT64_MAX / 2;

// Where a controller's files are: its mount, and our group below that. The name "" means version 2.
struct Group {
  std::string mount, path;
};

std::map<std::string, Group> own_groups(const std::string& root) {
  std::map<std::string, std::string> paths;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // A line is "id:controllers:path"; version 2 has no controllers.
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    for (const std::string_view controller : split(parts[1], ',')) {
      paths[std::string(controller)] = std::string(parts[2]);
    }
  }
  std::map<std::string, Group> found;
  std::ifstream mounts(root + "/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, place, type, options;
    words >> device >> place >> type >> options;
    if (type == "cgroup2" && paths.count("") > 0)
      found.try_emplace("", Group{root + place, paths[""]});
    if (type != "cgroup") continue;
    for (const std::string_view option : split(options, ',')) {
      const auto path = paths.find(std::string(option));
      if (path != paths.end()) found.try_emplace(path->first, Group{root + place, path->second});
    }
  }
  return found;
}

using Reader = std::function<std::optional<double>(const std::string& folder)>;

// Takes the smallest value of all groups from ours up to the mount.
void take_least(const std::map<std::string, Group>& groups, const std::string& controller,
                const Reader& read, std::optional<double>& least) {
  const auto group = groups.find(controller);
  if (group == groups.end()) return;
  // In a container the mount may begin at our own group while the path is the host's, so
  // directories that do not exist are skipped.
  for (std::string path = group->second.path;; path.resize(path.rfind('/'))) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const auto value = read(group->second.mount + path);
    if (value && (!least || *value < *least)) least = value;
    if (path.empty()) return;
  }
}

Reader number_in(const char* file) {
  return [file](const std::string& folder) -> std::optional<double> {
    const auto value = parse_int<std::int64_t>(first_line(folder + "/" + file));
    // "max" is no number, and means no limit.
    if (!value || *value < 0 || *value > kNoLimit) return std::nullopt;
    return static_cast<double>(*value);
  };
}

// Parses a share in CPUs: "QUOTA PERIOD", or one file for each.
std::optional<double> share_of(const std::string& text) {
  std::istringstream words(text);
  double quota = 0;
  double period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

Json cgroup_facts(const std::string& root) {
  const auto groups = own_groups(root);
  std::optional<double> memory, pids, cpus;
  // A host may use version 1 for one controller and version 2 for another, so ask both.
  take_least(groups, "", number_in("memory.max"), memory);
  take_least(groups, "memory", number_in("memory.limit_in_bytes"), memory);
  take_least(groups, "", number_in("pids.max"), pids);
  take_least(groups, "pids", number_in("pids.max"), pids);
  take_least(
      groups, "",
      [](const std::string& folder) { return share_of(first_line(folder + "/cpu.max")); }, cpus);
  take_least(
      groups, "cpu",
      [](const std::string& folder) {
        return share_of(first_line(folder + "/cpu.cfs_quota_us") + " " +
                        first_line(folder + "/cpu.cfs_period_us"));
      },
      cpus);
  Json out;
  const auto path = groups.find(groups.count("memory") > 0 ? "memory" : "");
  out["path"] = path == groups.end() ? "" : path->second.path;
  out["memory_max"] = static_cast<std::int64_t>(memory.value_or(-1));
  out["pids_max"] = static_cast<std::int64_t>(pids.value_or(-1));
  out["cpus"] = cpus.value_or(0);
  return out;
}

}  // namespace hora::doctor
