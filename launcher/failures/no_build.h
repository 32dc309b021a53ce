// SPDX-License-Identifier: Apache-2.0
// A host whose processor this installation has no build for.  [pure]
#pragma once

#include <string_view>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

// `machine` is what the host says it is, `there_are` names the machines that have a build.
Failure no_build_for(std::string_view machine, std::string_view there_are);

}  // namespace hora::launcher
