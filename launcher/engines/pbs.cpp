// SPDX-License-Identifier: Apache-2.0
// OpenPBS, PBS Professional and Torque: qsub(1B). Not run on a real PBS.
//
// pbsdsh and pbs_tmrsh, which would start agents inside of the job, have no standard input for
// them.
#include "launcher/engines/host_counts.h"
#include "launcher/engines/registry.h"

namespace hora::launcher {

namespace {

// A line for each slot, so that a host comes as often as it has slots.
Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>&) {
  auto text = needed_file(inputs, "PBS_NODEFILE");
  if (!text) return std::move(text).error();
  auto hosts = count_hosts(*text, "$PBS_NODEFILE");
  if (!hosts) return std::move(hosts).error();
  return Allocation{inputs.variable("PBS_JOBID").value_or(""), std::move(*hosts), {}};
}

constexpr EngineDescriptor kDescriptor{.name = "pbs",
                                       .title = "PBS, Torque",
                                       .from = "`$PBS_NODEFILE`",
                                       .how = "ssh",
                                       .mark = "PBS_JOBID",
                                       .find = find};

}  // namespace

const EngineDescriptor* pbs_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
