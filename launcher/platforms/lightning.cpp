// SPDX-License-Identifier: Apache-2.0
// Lightning's multi-machine jobs.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "NUM_NODES").value_or(1);
  found.index = number_of(inputs, "NODE_RANK");
  found.head = text_of(inputs, "MASTER_ADDR");
  if (!found.index || found.head.empty()) return std::nullopt;
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "Lightning",
                                         .mark = "$NUM_NODES",
                                         .order = "`$NODE_RANK`; GPUs",
                                         .find = find,
                                         .yields_to_engines = true};

}  // namespace

const PlatformDescriptor* lightning_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
