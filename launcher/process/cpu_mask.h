// SPDX-License-Identifier: Apache-2.0
// The CPUs that the kernel lets a thread run on, whatever their number.
#pragma once

#include <sys/types.h>

#include <vector>

namespace hora::launcher {

// A bit per CPU, as sched_setaffinity(2) takes it. Empty: the kernel did not say.
using CpuMask = std::vector<unsigned long>;

CpuMask cpu_mask_of_this_thread();
// 0: the calling thread.
bool set_cpu_mask(pid_t thread, const CpuMask& mask);

bool has_cpu(const CpuMask& mask, std::size_t cpu);
std::vector<int> cpus_in(const CpuMask& mask);
std::size_t count_cpus(const CpuMask& mask);
// `like`: of the same size.
CpuMask mask_of(const std::vector<int>& cpus, const CpuMask& like);

}  // namespace hora::launcher
