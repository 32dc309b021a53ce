// SPDX-License-Identifier: Apache-2.0
// Volcano's svc plug-in: the pods of a task have each other's names. Other tasks of the job may run
// other commands. Its MPI plug-in is an engine: the command runs in one pod.
#include <utility>

#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kBegin = "VC_", kEnd = "_HOSTS";

// Of the only task, or of that to which this pod belongs.
std::vector<std::string> task_of(const EngineInputs& inputs) {
  std::vector<std::vector<std::string>> tasks;
  for (const std::string& name : inputs.variable_names()) {
    if (name.starts_with(kBegin) && name.ends_with(kEnd)) {
      tasks.push_back(names_in(text_of(inputs, name)));
    }
  }
  if (tasks.size() == 1) return tasks.front();
  const std::string pod = text_of(inputs, "HOSTNAME");
  for (auto& task : tasks) {
    for (const std::string& name : task) {
      if (!pod.empty() && name.substr(0, name.find('.')) == pod) return std::move(task);
    }
  }
  return {};
}

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  if (!inputs.variable_names || !text_of(inputs, "MPI_HOST").empty()) return std::nullopt;
  PlatformNodes found;
  found.index = number_of(inputs, "VC_TASK_INDEX");
  if (!found.index) found.index = number_of(inputs, "VK_TASK_INDEX");
  if (!found.index) return std::nullopt;
  found.names = task_of(inputs);
  found.count = static_cast<int>(found.names.size());
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "Volcano",
                                         .mark = "$VC_TASK_INDEX",
                                         .order = "`$VC_TASK_HOSTS` of the pod's task; GPUs",
                                         .find = find};

}  // namespace

const PlatformDescriptor* volcano_svc_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
