// SPDX-License-Identifier: Apache-2.0
// The engines that this build knows: those of CMakeLists.txt, in its order.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/engines/engine.h"

namespace hora::launcher {

// The engines outlive the program.
std::span<const EngineDescriptor* const> engines();

// nullptr: there is none of this name.
const EngineDescriptor* find_engine(std::string_view name);

// The engine in whose allocation this process is; nullptr: in none. The first one of several wins.
const EngineDescriptor* engine_here(const EngineInputs& inputs);

bool is_here(const EngineDescriptor& engine, const EngineInputs& inputs);

// The table of docs/reference/engines.md.
std::string engine_reference();

}  // namespace hora::launcher
