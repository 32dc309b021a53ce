// SPDX-License-Identifier: Apache-2.0
// Is this agent the program that its name in the cache says? Takes as long as reading the program
// does, a few megabytes the first time.
#pragma once

#include <string>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Checks the running program. One that is called agent-SHA256 has to belong to us, be writable by
// no other user, and have that hash. A file that passed is noted next to it, by inode, size and the
// times of its last changes, and is not read again as long as those stay. Returns the hash; empty
// for a program of another name, which is not a cached copy. On an error the file is removed, so
// that the launcher sends a good one.
Result<std::string> verify_own_image();

// The same for the file at `path`, open as `program` (/proc/self/exe); for tests.
Result<std::string> verify_image(const std::string& path, const std::string& program);

}  // namespace hora::launcher
