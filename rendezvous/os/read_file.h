// SPDX-License-Identifier: Apache-2.0
// Reads whole files: settings, manifests, /proc.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "rendezvous/base/result.h"

namespace hora::os {

// Reads the rest of `fd`, which errors call `name`. More than `limit` bytes are an error.
Result<std::string> read_to_end(int fd, const std::string& name,
                                std::size_t limit = std::numeric_limits<std::size_t>::max());

Result<std::string> read_file(const std::string& path);

}  // namespace hora::os
