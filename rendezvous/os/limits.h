// SPDX-License-Identifier: Apache-2.0
// Limits of this process, and what is done at them.
#pragma once

#include <cstddef>
#include <limits>

namespace hora::os {

// How many files this process may have open.

// Raises the soft limit to `least`, or as far as the hard one allows, and returns the limit now in
// force; never lowers it. Children inherit it.
std::size_t raise_file_limit(std::size_t least = std::numeric_limits<std::size_t>::max());

// The reaction of a program that gets no memory for an object, or no thread: it prints one line and
// exits with its own code. It cannot clean up without resources; processes that depend on it see
// its end and do that.

// `name` begins the line on standard error; it must live as long as the process. Call this before
// other threads start.
void exit_when_out_of_resources(const char* name, int exit_code);

// The same end, for a caller that cannot go on: `why` says which resource is missing.
[[noreturn]] void exit_without_resources(const char* why);

}  // namespace hora::os
