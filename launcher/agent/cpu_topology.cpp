// SPDX-License-Identifier: Apache-2.0
// Reads the kernel's view of CPUs, cores and NUMA nodes from sysfs, limited to the CPUs that this
// process may use (a container's or a batch system's share).
#include "launcher/agent/cpu_topology.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

// cpu_set_t ends at 1,024 CPUs; the system call takes a mask of any size.
constexpr std::size_t kMostCpus = 8192;
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

std::vector<unsigned long> current_mask() {
  std::vector<unsigned long> mask(kMostCpus / kWordBits, 0);
  if (::sched_getaffinity(0, mask.size() * sizeof mask[0],
                          reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    mask.clear();
  }
  return mask;
}

int number_in(const std::string& path, int otherwise) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[32];
  const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof text) : 0;
  if (got <= 0) return otherwise;
  return parse_int<int>(trim({text, static_cast<std::size_t>(got)})).value_or(otherwise);
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

std::vector<CpuPlace> usable_cpu_places() {
  std::vector<CpuPlace> places;
  const auto mask = current_mask();
  for (std::size_t cpu = 0; cpu < mask.size() * kWordBits; ++cpu) {
    if ((mask[cpu / kWordBits] >> (cpu % kWordBits) & 1) == 0) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    CpuPlace place;
    place.cpu = static_cast<int>(cpu);
    const int package = number_in(folder + "/topology/physical_package_id", 0);
    // core_id is only unique within one package.
    place.core = package * 100'000 + number_in(folder + "/topology/core_id", static_cast<int>(cpu));
    place.node = node_of(folder);
    places.push_back(place);
  }
  return places;
}

// The mask of the calling thread is inherited by the child that it spawns; the destructor restores
// it.
AffinityScope::AffinityScope(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  before_ = current_mask();
  if (before_.empty()) return;
  std::vector<unsigned long> mask(before_.size(), 0);
  for (const int cpu : cpus)
    mask[static_cast<std::size_t>(cpu) / kWordBits] |= 1UL << (cpu % kWordBits);
  changed_ = ::sched_setaffinity(0, mask.size() * sizeof mask[0],
                                 reinterpret_cast<const cpu_set_t*>(mask.data())) == 0;
}

AffinityScope::~AffinityScope() {
  if (!changed_) return;
  (void)::sched_setaffinity(0, before_.size() * sizeof before_[0],
                            reinterpret_cast<const cpu_set_t*>(before_.data()));
}

}  // namespace hora::launcher
