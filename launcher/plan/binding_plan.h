// SPDX-License-Identifier: Apache-2.0
// Which CPUs each rank of a host may use, and how many threads are sensible there.  [pure]
#pragma once

#include <string>
#include <vector>

namespace hora::launcher {

struct CpuPlace {
  int cpu = 0;   // as the kernel counts them
  int core = 0;  // CPUs of one core share it; unique over packages
  int node = 0;  // NUMA node
};

struct Binding {
  std::vector<std::vector<int>> cpus;  // by local rank; empty: all may be used
  int threads = 1;                     // OMP_NUM_THREADS: cores per rank, at least one
  std::string why;                     // "each rank on its NUMA node"
};

// `usable` are the CPUs that this process may run on; `mode` is none, auto, core or numa. auto
// binds to NUMA nodes where there are several: sharing a node with another job costs little,
// sharing a core halves both.
Binding plan_binding(const std::vector<CpuPlace>& usable, int ranks, const std::string& mode);

// The GPUs of a local rank, as CUDA_VISIBLE_DEVICES has them; empty: none are set. `visible` are
// those that may be used, `per_rank` is auto or a number.
std::string plan_gpus(const std::vector<std::string>& visible, int ranks, int local_rank,
                      const std::string& per_rank);

}  // namespace hora::launcher
