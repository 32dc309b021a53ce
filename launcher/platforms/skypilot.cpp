// SPDX-License-Identifier: Apache-2.0
// SkyPilot: `run:` of a task with num_nodes, on VMs, in pods and in allocations of Slurm, whose
// variables each node has as well.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  found.names = names_in(text_of(inputs, "SKYPILOT_NODE_IPS"));
  found.count = static_cast<int>(found.names.size());
  found.index = number_of(inputs, "SKYPILOT_NODE_RANK");
  if (!found.index) return std::nullopt;
  // 0: a node without GPUs.
  const auto gpus = number_of(inputs, "SKYPILOT_NUM_GPUS_PER_NODE");
  found.slots = slots_on_each(gpus == 0 ? 1 : gpus, found.count);
  found.job = text_of(inputs, "SKYPILOT_TASK_ID");
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "SkyPilot",
                                         .mark = "$SKYPILOT_NODE_IPS",
                                         .order = "its lines; `$SKYPILOT_NUM_GPUS_PER_NODE`, or 1",
                                         .find = find,
                                         .key_file = ".ssh/sky-cluster-key"};

}  // namespace

const PlatformDescriptor* skypilot_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
