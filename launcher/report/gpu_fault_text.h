// SPDX-License-Identifier: Apache-2.0
// Faults of GPUs in words: where, whose, what it means, what to do.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct HostGpuFault {
  std::string host;  // by the name that the job knows it by
  GpuFault fault;
};

// "GPU 0000:3b:00 of node3 (rank 2, pid 4711): Xid 79, the GPU has fallen off the bus: ..."
std::string gpu_fault_text(const HostGpuFault& seen);

// For the last words: the faults so far, the first ones, with what to do. Empty without any.
std::string gpu_fault_report(const std::vector<HostGpuFault>& faults);

}  // namespace hora::launcher
