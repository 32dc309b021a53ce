// SPDX-License-Identifier: Apache-2.0
// By which addresses one host should try another.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/protocol/messages.h"

namespace hora::launcher::doctor {

// The addresses of a host, those first that are in a network of `from`; three at most.
std::vector<std::string> addresses_towards(const Hello& from, const Hello& to);

}  // namespace hora::launcher::doctor
