// SPDX-License-Identifier: Apache-2.0
// What this host can run: its CPUs with core, NUMA node, socket and cache, and how many processes
// it can have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/binding.h"
#include "launcher/process/cpu_mask.h"

namespace hora::launcher {

// The CPUs that this process may use, with core, NUMA node, socket and cache.

// On a machine of 128 CPUs, the caches take 640 files to read, cores and sockets 256: only if
// needed.
enum class CpuDetail {
  kCounts,  // cores have any numbers, one each, and CpuPlace::package may be 0
  kPlaces,
  kCaches,
};
std::vector<CpuPlace> usable_cpu_places(CpuDetail detail);

// The calling thread, and what it starts, runs on these CPUs until this object goes.
class AffinityScope {
 public:
  explicit AffinityScope(const std::vector<int>& cpus);  // empty: nothing is changed
  ~AffinityScope();
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;

 private:
  CpuMask before_;
  bool changed_ = false;
};

// How many processes this host can have at all. A job with more ranks than that is refused before
// its first rank starts.

struct ProcessLimit {
  std::int64_t most = 0;
  std::string name;  // of the setting: "ulimit -u", "kernel.pid_max"
};

struct HostRoom {
  std::vector<ProcessLimit> limits;
  std::int64_t memory_bytes = 0;  // with swap; 0: unknown
};

// Only what holds for every process: what is in use now may be free in a moment.
HostRoom read_host_room();

struct Lack {
  std::string message;
  std::string advice;
};
// What a host with these limits lacks for that many ranks; nothing: it has enough. [pure]
std::optional<Lack> find_lack(std::size_t ranks, const HostRoom& room);

// MemTotal and SwapTotal of the text of /proc/meminfo; 0: missing there. [pure]
std::int64_t memory_of(std::string_view meminfo);

}  // namespace hora::launcher
