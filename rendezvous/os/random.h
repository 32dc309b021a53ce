// SPDX-License-Identifier: Apache-2.0
// Unpredictable bytes from the kernel. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace hora::os {

// Returns `count` bytes. Never fails: a kernel without random bytes ends the process.
std::string random_bytes(std::size_t count);

// A secret for one job, or a unique name: 128 bits as 32 lower-case hex digits.
std::string random_token();

}  // namespace hora::os
