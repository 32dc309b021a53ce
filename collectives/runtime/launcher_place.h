// SPDX-License-Identifier: Apache-2.0
// The place of a rank, computed from which ranks share a machine.
#pragma once

#include <string>
#include <vector>

#include "collectives/launcher_bootstrap.h"

namespace hora::collectives {

// machines: by rank, equal where two ranks share memory (machine_identity.h).
LauncherPlace place_among(const std::vector<std::string>& machines, int rank);

}  // namespace hora::collectives
