// SPDX-License-Identifier: Apache-2.0
// Whether a host can load the runtime that this installation ships.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

// Why a host with `c_library` (Hello) cannot load a runtime that needs glibc `least_glibc`. Nothing
// when it can, or when one of the two is unknown.
std::optional<Failure> why_runtime_does_not_fit(std::string_view c_library,
                                                const std::string& least_glibc);

}  // namespace hora::launcher
