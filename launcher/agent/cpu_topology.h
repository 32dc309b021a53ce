// SPDX-License-Identifier: Apache-2.0
// The CPUs that this process may use, with core, NUMA node, socket and cache.
#pragma once

#include <vector>

#include "launcher/plan/binding_plan.h"
#include "launcher/process/cpu_mask.h"

namespace hora::launcher {

// Of a machine of 128 CPUs, the caches take 640 files to read, cores and sockets 256: not without
// need.
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

}  // namespace hora::launcher
