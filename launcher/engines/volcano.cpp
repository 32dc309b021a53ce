// SPDX-License-Identifier: Apache-2.0
// Volcano's MPI plug-in: names of the worker pods, separated by commas, and ssh.
#include <algorithm>

#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"

namespace hora::launcher {

namespace {

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
                                       .from = "`$MPI_HOST`, one slot for each mention",
                                       .how = "ssh",
                                       .mark = "MPI_HOST",
                                       .find = find,
                                       .hosts_come_late = true};

}  // namespace

const EngineDescriptor* volcano_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
