// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/gpu_fault_text.h"

#include <algorithm>

#include "launcher/failures/explain.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kShown = 4;

std::string owner(const GpuFault& fault) {
  const std::string process = fault.pid > 0 ? "pid " + std::to_string(fault.pid) : std::string();
  if (fault.rank >= 0) {
    return " (rank " + std::to_string(fault.rank) + (process.empty() ? "" : ", " + process) + ")";
  }
  if (process.empty()) return {};
  return " (" + process + (fault.program.empty() ? "" : ", " + fault.program) + ")";
}

}  // namespace

std::string gpu_fault_text(const HostGpuFault& seen) {
  const GpuFault& fault = seen.fault;
  const XidClass* known = find_xid(fault.xid);
  return "GPU " + visible_line(fault.device) + " of " + seen.host + visible_line(owner(fault)) +
         ": Xid " + std::to_string(fault.xid) +
         (known != nullptr ? ", " + std::string(known->meaning) : std::string()) +
         (fault.text.empty() ? "" : ": " + visible_line(fault.text));
}

std::string gpu_fault_report(const std::vector<HostGpuFault>& faults) {
  std::string text;
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) {
    const XidClass* known = find_xid(faults[i].fault.xid);
    text += "  " + gpu_fault_text(faults[i]) + "\n    what to do: " +
            (known != nullptr ? std::string(known->fix)
                              : "see NVIDIA's catalogue: " + std::string(kXidCatalogue)) +
            "\n";
  }
  if (faults.size() > kShown) {
    text += "  and " + std::to_string(faults.size() - kShown) + " more faults of GPUs\n";
  }
  return text;
}

}  // namespace hora::launcher
