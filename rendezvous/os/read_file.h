// Files read whole: settings, manifests, what /proc shows.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "rendezvous/base/result.h"

namespace hora::os {

// What is left to read of `fd`, which is called `name` in errors. More than `limit` bytes are one.
Result<std::string> read_to_end(int fd, const std::string& name,
                                std::size_t limit = std::numeric_limits<std::size_t>::max());

Result<std::string> read_file(const std::string& path);

}  // namespace hora::os
