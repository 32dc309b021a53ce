// SPDX-License-Identifier: Apache-2.0
// What a person is told of an allocation.  [pure]
#pragma once

#include <string>
#include <string_view>

#include "launcher/engines/engine.h"

namespace hora::launcher {

// "Slurm job 4711: 8 slots on 4 hosts (n1:4,n2:2,n3,n4); agents start by srun". Only the first of
// many hosts are named. No `how`: the only host is this machine, and nothing has to reach it.
std::string allocation_text(const EngineDescriptor& engine, const Allocation& allocation,
                            std::string_view how);

// "Slurm job 4711 has 6 slots on 3 hosts now (n1:2,n2:2,n5:2)".
std::string allocation_change_text(const EngineDescriptor& engine, std::string_view job,
                                   const std::vector<Host>& hosts);

}  // namespace hora::launcher
