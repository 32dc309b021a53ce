// SPDX-License-Identifier: Apache-2.0
// How many files this process may have open.
#pragma once

#include <cstddef>

namespace hora::os {

// Raises the soft limit to the hard one and returns the limit now in force. Children inherit it.
std::size_t raise_file_limit();

}  // namespace hora::os
