// SPDX-License-Identifier: Apache-2.0
// MPIJob and TrainJob: the launcher pods of Kubeflow's MPI Operator (v2beta1) and Trainer (v2).
// They are given an MPI hostfile and a way to the workers, by ssh.
#include <array>

#include "launcher/engines/host_counts.h"
#include "launcher/engines/registry.h"

namespace hora::launcher {

namespace {

// Which MPI the job is for decides which of them is set.
constexpr std::array<std::string_view, 3> kHostfiles{"OMPI_MCA_orte_default_hostfile",
                                                     "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"};
// Elsewhere users set such a variable for themselves.
constexpr std::string_view kFolder = "/etc/mpi/";

// The variable that names it; empty: none does.
std::string_view hostfile_variable(const EngineInputs& inputs) {
  for (const std::string_view name : kHostfiles) {
    const auto path = inputs.variable(name);
    if (path && path->starts_with(kFolder)) return name;
  }
  return {};
}

bool is_here(const EngineInputs& inputs) { return !hostfile_variable(inputs).empty(); }

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>&) {
  const std::string_view name = hostfile_variable(inputs);
  auto text = needed_file(inputs, name);
  if (!text) return std::move(text).error();
  auto hosts = parse_hostfile(*text, inputs.variable(name).value_or(""));
  if (!hosts) return std::move(hosts).error();
  for (Host& host : *hosts) host.slots = host.slots.value_or(1);
  return Allocation{"", std::move(*hosts), {}};
}

constexpr EngineDescriptor kDescriptor{.name = "mpijob",
                                       .title = "MPIJob, TrainJob (Kubernetes)",
                                       .from =
                                           "the hostfile that `$OMPI_MCA_orte_default_hostfile`, "
                                           "`$HYDRA_HOST_FILE` or `$I_MPI_HYDRA_HOST_FILE` "
                                           "names, if it is in `/etc/mpi`",
                                       .how = "ssh",
                                       .mark = "OMPI_MCA_orte_default_hostfile",
                                       .is_here = is_here,
                                       .find = find,
                                       .hosts_come_late = true};

}  // namespace

const EngineDescriptor* mpijob_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
