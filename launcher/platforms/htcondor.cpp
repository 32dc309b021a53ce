// SPDX-License-Identifier: Apache-2.0
// HTCondor's parallel universe.
#include "launcher/platforms/platform.h"

namespace hora::launcher {

namespace {

std::optional<PlatformNodes> find(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "_CONDOR_NPROCS").value_or(1);
  found.index = number_of(inputs, "_CONDOR_PROCNO");
  return found;
}

constexpr PlatformDescriptor kDescriptor{.title = "HTCondor",
                                         .mark = "$_CONDOR_NPROCS",
                                         .order = "`$_CONDOR_PROCNO`; GPUs",
                                         .find = find,
                                         .finds_head = false};

}  // namespace

const PlatformDescriptor* htcondor_platform_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
