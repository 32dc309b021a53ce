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

// The first line of a file, byte by byte: what follows stays unread. More than `limit` bytes
// without an end are an error.
Result<std::string> read_line(int fd, const std::string& name, std::size_t limit);

// Errors (kUsage): a secret in a file that others can read or write, or that belongs to neither
// this user nor root. What is not a file, such as a pipe, passes.
Status check_secret_file(int fd, const std::string& name);

}  // namespace hora::os
