// How many files this process may have open.
#pragma once

#include <cstddef>

namespace hora::os {

// Raises the soft limit to the hard one, and says what the limit is now. Children inherit it.
std::size_t raise_file_limit();

}  // namespace hora::os
