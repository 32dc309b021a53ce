// SPDX-License-Identifier: Apache-2.0
// Which ranks share memory.
#pragma once

#include <string>

namespace hora::collectives {

// Equal in two processes if they can share memory: the same boot of a kernel, and the same
// /dev/shm.
std::string machine_identity();

}  // namespace hora::collectives
