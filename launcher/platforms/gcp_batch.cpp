// SPDX-License-Identifier: Apache-2.0
// Batch of Google Cloud. Without a file of hosts (requireHostsFile) tasks are independent of each
// other.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  const std::string path = text_of(inputs, "BATCH_HOSTS_FILE");
  const auto text = path.empty() ? Result<std::string>(std::string()) : inputs.read_file(path);
  PlatformNodes found;
  // Their order is not documented, so these names say nothing about a node's index. A container may
  // not see the file.
  found.count = text ? static_cast<int>(names_in(*text).size())
                     : number_of(inputs, "BATCH_TASK_COUNT").value_or(1);
  if (number_of(inputs, "BATCH_TASK_COUNT").value_or(found.count) == found.count) {
    found.index = number_of(inputs, "BATCH_TASK_INDEX");
  }
  found.head = text_of(inputs, "BATCH_MAIN_NODE_HOSTNAME");
  found.job = text_of(inputs, "BATCH_JOB_UID");
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "Google Cloud Batch",
                                         .mark = "$BATCH_HOSTS_FILE",
                                         .order = "`$BATCH_TASK_INDEX`; GPUs",
                                         .find = find};

}  // namespace

const PlatformDescriptor* gcp_batch_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
