// SPDX-License-Identifier: Apache-2.0
// The engines that this build knows, those of CMakeLists.txt in its order, and the text about an
// allocation.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/engines/engine.h"

namespace hora::launcher {

// The engines that this build knows: those of CMakeLists.txt, in its order.

// The engines outlive the program.
std::span<const EngineDescriptor* const> engines();

// nullptr: there is none of this name.
const EngineDescriptor* find_engine(std::string_view name);

// The engine in whose allocation this process is; nullptr: in none. The first one of several wins.
const EngineDescriptor* engine_here(const EngineInputs& inputs);

bool is_here(const EngineDescriptor& engine, const EngineInputs& inputs);

// The table of docs/reference/engines.md.
std::string engine_reference();

// How an allocation is described to users.

// "Slurm job 4711: 8 slots on 4 hosts (n1:4,n2:2,n3,n4); agents start by srun". Only the first of
// many hosts are named. No `how`: the only host is this machine, and nothing has to reach it.
std::string allocation_text(const EngineDescriptor& engine, const Allocation& allocation,
                            std::string_view how);

// "Slurm job 4711 has 6 slots on 3 hosts now (n1:2,n2:2,n5:2)".
std::string allocation_change_text(const EngineDescriptor& engine, std::string_view job,
                                   const std::vector<Host>& hosts);

}  // namespace hora::launcher
