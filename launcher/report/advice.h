// SPDX-License-Identifier: Apache-2.0
// What to do about a program that could not be started.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/failures/rank_exit_text.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// Whole lines, the class first; empty for a class that is not known here. `has_it`: the ranks'
// directory has a file of that name, on the launcher's machine.
std::string start_advice(const RankExit& exit, bool has_it);

// Faults of GPUs in words: where, whose, what it means, what to do.  [pure]
struct HostGpuFault {
  std::string host;  // by the name that the job knows it by
  GpuFault fault;
};

// "GPU 0000:3b:00 of node3 (rank 2, pid 4711): Xid 79, the GPU has fallen off the bus: ..."
std::string gpu_fault_text(const HostGpuFault& seen);

// For the last words: the faults so far, the first ones, with what to do. Empty without any.
std::string gpu_fault_report(const std::vector<HostGpuFault>& faults);

}  // namespace hora::launcher
