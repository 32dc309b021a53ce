// SPDX-License-Identifier: Apache-2.0
// Volcano's MPI plug-in: names of the worker pods, separated by commas, and ssh.
#include <algorithm>

#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"

namespace hora::launcher {

namespace {

// Others call a host by that name, too. The plug-in brings one that names the pods of each task.
bool is_here(const EngineInputs& inputs) {
  if (inputs.variable("MPI_HOST").value_or("").empty()) return false;
  if (inputs.variable("VC_TASK_INDEX") || inputs.variable("VK_TASK_INDEX")) return true;
  if (!inputs.variable_names) return false;
  const auto names = inputs.variable_names();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("VC_") && name.ends_with("_HOSTS");
  });
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>&) {
  auto list = needed_variable(inputs, "MPI_HOST");
  if (!list) return std::move(list).error();
  std::replace(list->begin(), list->end(), ',', ' ');
  auto hosts = count_hosts(*list, "$MPI_HOST");
  if (!hosts) return std::move(hosts).error();
  return Allocation{"", std::move(*hosts), {}};
}

constexpr EngineDescriptor kDescriptor{.name = "volcano",
                                       .title = "Volcano (Kubernetes)",
                                       .from =
                                           "`$MPI_HOST`, one slot for each mention, in a pod with "
                                           "`$VC_TASK_INDEX` or `$VC_<TASK>_HOSTS`",
                                       .how = "ssh",
                                       .mark = "MPI_HOST",
                                       .is_here = is_here,
                                       .find = find,
                                       .hosts_come_late = true};

}  // namespace

const EngineDescriptor* volcano_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
