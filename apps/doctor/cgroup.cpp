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

// A version 1 limit that is none is a page below the largest number.
constexpr std::int64_t kNoLimit = INT64_MAX / 2;

// Where a controller's files are: its mount, and our group below that. "" is version 2.
struct Group {
  std::string mount, path;
};

std::map<std::string, Group> own_groups(const std::string& root) {
  std::map<std::string, std::string> paths;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
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

// The least of all groups from ours up to the mount.
void take_least(const std::map<std::string, Group>& groups, const std::string& controller,
                const Reader& read, std::optional<double>& least) {
  const auto group = groups.find(controller);
  if (group == groups.end()) return;
  // In a container the mount may begin at our own group, and the path is the host's.
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
    if (!value || *value < 0 || *value > kNoLimit) return std::nullopt;
    return static_cast<double>(*value);
  };
}

// CPUs' worth of time: "QUOTA PERIOD", or a file for each.
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
