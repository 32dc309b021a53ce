// SPDX-License-Identifier: Apache-2.0
// What the library can say about itself and this process, as JSON.
#pragma once

#include <string>

#include "collectives/runtime/communicator.h"

namespace hora::collectives {

// `communicator` may be null: before hora_init.
std::string describe(const Communicator* communicator);

}  // namespace hora::collectives
