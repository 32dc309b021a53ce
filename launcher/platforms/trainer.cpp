// SPDX-License-Identifier: Apache-2.0
// Kubeflow: TrainJobs of PyTorch (Trainer v2), and PyTorchJobs with a number of processes, give
// torchrun its node by its own variables.
#include "launcher/platforms/platform.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kFirstNode = "-node-0-0.";

// "tj-node-0-0.tj" is the first of two: "tj-node-0-1.tj" is the other. PyTorchJobs name one alone.
std::vector<std::string> names_like(const std::string& head, int count) {
  const std::size_t at = head.find(kFirstNode);
  std::vector<std::string> names;
  if (at == std::string::npos || count > kMaxHosts) return names;
  for (int i = 0; i < count; ++i) {
    names.push_back(head.substr(0, at) + "-node-0-" + std::to_string(i) + "." +
                    head.substr(at + kFirstNode.size()));
  }
  return names;
}

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  const std::string nodes = text_of(inputs, "PET_NNODES");
  // "1:4" is torchrun's elastic form: how many there are now is not known.
  const std::size_t colon = nodes.find(':');
  found.count =
      parse_int<int>(nodes.substr(colon == std::string::npos ? 0 : colon + 1)).value_or(1);
  if (colon == std::string::npos) found.index = number_of(inputs, "PET_NODE_RANK");
  found.head = text_of(inputs, "PET_MASTER_ADDR");
  found.names = names_like(found.head, found.count);
  found.port = port_of(inputs, "PET_MASTER_PORT");
  found.slots = slots_on_each(number_of(inputs, "PET_NPROC_PER_NODE"), found.count);
  return found;
}

constexpr PlatformDescriptor kDescriptor{
    .title = "Kubeflow",
    .mark = "$PET_NNODES",
    .order = "`$PET_NODE_RANK`; `$PET_NPROC_PER_NODE` if it is a number, else GPUs",
    .find = find};

}  // namespace

const PlatformDescriptor* trainer_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
