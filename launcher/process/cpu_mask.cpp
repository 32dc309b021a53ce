// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/cpu_mask.h"

#include <sched.h>

#include <bit>
#include <cerrno>

namespace hora::launcher {

namespace {

constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
constexpr std::size_t kUsualCpus = 1'024;
constexpr std::size_t kMostBits = 1u << 20;  // the call fails for another reason

}  // namespace

// The kernel refuses a mask that has no room for all CPUs that there may be.
CpuMask cpu_mask_of_this_thread() {
  for (std::size_t cpus = kUsualCpus; cpus <= kMostBits; cpus *= 2) {
    CpuMask mask(cpus / kWordBits, 0);
    if (::sched_getaffinity(0, mask.size() * sizeof mask[0],
                            reinterpret_cast<cpu_set_t*>(mask.data())) == 0) {
      return mask;
    }
    if (errno != EINVAL) break;
  }
  return {};
}

bool set_cpu_mask(pid_t thread, const CpuMask& mask) {
  return ::sched_setaffinity(thread, mask.size() * sizeof mask[0],
                             reinterpret_cast<const cpu_set_t*>(mask.data())) == 0;
}

bool has_cpu(const CpuMask& mask, std::size_t cpu) {
  return cpu / kWordBits < mask.size() && (mask[cpu / kWordBits] >> (cpu % kWordBits) & 1) != 0;
}

std::size_t count_cpus(const CpuMask& mask) {
  std::size_t count = 0;
  for (const unsigned long word : mask) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

std::vector<int> cpus_in(const CpuMask& mask) {
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < mask.size() * kWordBits; ++cpu) {
    if (has_cpu(mask, cpu)) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

// As long as the mask that it is made from, which the kernel took.
CpuMask mask_of(const std::vector<int>& cpus, const CpuMask& like) {
  CpuMask mask(like.size(), 0);
  for (const int cpu : cpus) {
    const auto number = static_cast<std::size_t>(cpu);
    if (number / kWordBits < mask.size()) mask[number / kWordBits] |= 1UL << (number % kWordBits);
  }
  return mask;
}

}  // namespace hora::launcher
