// SPDX-License-Identifier: Apache-2.0
// MPIJob and TrainJob: the launcher pods of Kubeflow's MPI Operator (v2beta1) and Trainer (v2).
// They are given an MPI hostfile and a way to the workers, by ssh.
//
// The operator keeps a script up to date that prints the workers that run: those that an elastic
// job can have.
#include <array>

#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Which MPI the job is for decides which of them is set.
constexpr std::array<std::string_view, 5> kHostfiles{
    "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",  // Open MPI to 4, from 5
    "OMPI_MCA_prte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"};
// Elsewhere users set such a variable for themselves.
constexpr std::string_view kFolder = "/etc/mpi/";
constexpr std::string_view kDiscovery = "/etc/mpi/discover_hosts.sh";

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
  Allocation found{"", std::move(*hosts), {}};
  // By sh: a volume may be mounted without the right to execute.
  if (inputs.read_file(std::string(kDiscovery))) {
    found.watch = EngineWatch{"/bin/sh " + std::string(kDiscovery), std::string(kDiscovery)};
  }
  return found;
}

// "echo worker-0.svc" is a line of the script: names without slots.
Result<AllocationNow> hosts_now(std::string_view printed, std::string_view,
                                const std::vector<Host>& at_start) {
  if (trim(printed).empty()) return AllocationNow{};
  auto hosts = count_hosts(printed, kDiscovery);
  if (!hosts) return std::move(hosts).error();
  give_slots(*hosts, at_start);
  return AllocationNow{std::move(*hosts), ""};
}

constexpr EngineDescriptor kDescriptor{.name = "mpijob",
                                       .title = "MPIJob, TrainJob (Kubernetes)",
                                       .from =
                                           "the hostfile that `$OMPI_MCA_orte_default_hostfile`, "
                                           "`$PRTE_MCA_prte_default_hostfile`, "
                                           "`$HYDRA_HOST_FILE` or `$I_MPI_HYDRA_HOST_FILE` "
                                           "names, if it is in `/etc/mpi`",
                                       .how = "ssh",
                                       .mark = "OMPI_MCA_orte_default_hostfile",
                                       .is_here = is_here,
                                       .find = find,
                                       .hosts_come_late = true,
                                       .hosts_now = hosts_now};

}  // namespace

const EngineDescriptor* mpijob_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
