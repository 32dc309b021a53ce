// SPDX-License-Identifier: Apache-2.0
// The processor that this program is built for.  [pure]
#pragma once

#include <string_view>

namespace hora {

// As `uname -m` names it: "x86_64", "aarch64". Also the folder of share/hora with the build for it.
std::string_view own_machine();

}  // namespace hora
