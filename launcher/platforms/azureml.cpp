// SPDX-License-Identifier: Apache-2.0
// Azure ML with one process on each node. With one for each GPU they are ranks, not nodes.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "AZUREML_NODE_COUNT").value_or(1);
  found.index = number_of(inputs, "AZUREML_CR_NODE_RANK");
  if (!found.index) found.index = number_of(inputs, "NODE_RANK");
  const bool is_rank = number_of(inputs, "LOCAL_RANK").value_or(0) > 0 ||
                       number_of(inputs, "WORLD_SIZE").value_or(0) > found.count;
  if (is_rank) found.index.reset();
  found.names = names_in(text_of(inputs, "AZ_BATCH_HOST_LIST"));
  found.head = without_port(text_of(inputs, "AZ_BATCH_MASTER_NODE"));
  if (found.head.empty()) found.head = text_of(inputs, "MASTER_ADDR");
  found.job = text_of(inputs, "AZUREML_RUN_ID");
  return found;
}

constexpr PlatformDescriptor kDescriptor{
    .title = "Azure ML",
    .mark = "$AZUREML_NODE_COUNT",
    .order = "`$AZUREML_CR_NODE_RANK` or `$NODE_RANK`, `$AZ_BATCH_HOST_LIST`; GPUs",
    .find = find};

}  // namespace

const PlatformDescriptor* azureml_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
