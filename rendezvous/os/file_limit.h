// SPDX-License-Identifier: Apache-2.0
// How many files this process may have open.
#pragma once

#include <cstddef>
#include <limits>

namespace hora::os {

// Raises the soft limit to `least`, or as far as the hard one allows, and returns the limit now in
// force; never lowers it. Children inherit it.
std::size_t raise_file_limit(std::size_t least = std::numeric_limits<std::size_t>::max());

}  // namespace hora::os
