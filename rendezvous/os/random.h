// Unpredictable bytes from the kernel.
#pragma once

#include <cstddef>
#include <string>

namespace hora::os {

// `count` bytes. Never fails: a kernel that has no random bytes to give ends the process.
std::string random_bytes(std::size_t count);

// A secret for one job, or a name that no other job has: 128 bits, 32 lower-case hex digits.
std::string random_token();

}  // namespace hora::os
