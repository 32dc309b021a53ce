// SPDX-License-Identifier: Apache-2.0
// PyTorchJobs without a number of processes, Run:ai and PAI DLC: torch's variables, of which these
// count pods.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

// A user of one machine sets the same variables. In a pod the master may be called localhost by
// itself.
bool is_elsewhere(const EngineInputs& inputs, const std::string& head) {
  return !head.empty() && (!(head == "localhost" || head.starts_with("127.") || head == "::1") ||
                           inputs.variable("KUBERNETES_SERVICE_HOST"));
}

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  found.head = text_of(inputs, "MASTER_ADDR");
  found.count = number_of(inputs, "WORLD_SIZE").value_or(1);
  found.index = number_of(inputs, "RANK");
  // A launcher that starts ranks gives them a place on their node.
  if (!found.index || inputs.variable("LOCAL_RANK") || !is_elsewhere(inputs, found.head)) {
    return std::nullopt;
  }
  found.port = port_of(inputs, "MASTER_PORT");
  found.slots = slots_on_each(number_of(inputs, "NPROC_PER_NODE"), found.count);
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "PyTorchJob",
                                         .mark = "$WORLD_SIZE",
                                         .order = "`$RANK`; `$NPROC_PER_NODE`, else GPUs",
                                         .find = find,
                                         .yields_to_engines = true};

}  // namespace

const PlatformDescriptor* pytorchjob_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
