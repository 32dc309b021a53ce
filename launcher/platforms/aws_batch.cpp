// SPDX-License-Identifier: Apache-2.0
// Multi-node jobs of AWS Batch. The main node does not know its own address.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "AWS_BATCH_JOB_NUM_NODES").value_or(1);
  found.index = number_of(inputs, "AWS_BATCH_JOB_NODE_INDEX");
  // The main node comes first, whichever it is.
  const int main = number_of(inputs, "AWS_BATCH_JOB_MAIN_NODE_INDEX").value_or(0);
  if (found.index == main) {
    found.index = 0;
  } else if (found.index && *found.index < main) {
    ++*found.index;
  }
  found.head = text_of(inputs, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
  const std::string job = text_of(inputs, "AWS_BATCH_JOB_ID");
  found.job = job.substr(0, job.find('#'));  // "#1" is this node's part
  return found;
}

constexpr PlatformDescriptor kDescriptor{
    .title = "AWS Batch",
    .mark = "$AWS_BATCH_JOB_NUM_NODES",
    .order = "`$AWS_BATCH_JOB_NODE_INDEX`, the main node first; GPUs",
    .find = find};

}  // namespace

const PlatformDescriptor* aws_batch_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
