// SPDX-License-Identifier: Apache-2.0
// Reads the kernel's view of CPUs, cores and NUMA nodes from sysfs, limited to the CPUs that this
// process may use (a container's or a batch system's share).
#include "launcher/agent/cpu_topology.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

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
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  while (open != nullptr) {
    const dirent* item = ::readdir(open.get());
    if (item == nullptr) break;
    if (std::strncmp(item->d_name, "node", 4) == 0) {
      if (const auto node = parse_int<int>(item->d_name + 4)) return *node;
    }
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

}  // namespace hora::launcher
