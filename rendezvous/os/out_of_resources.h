// SPDX-License-Identifier: Apache-2.0
// What a program does when it gets no memory for an object, or no thread: it prints one line and
// exits with its own code. It cannot clean up without resources; whoever depends on the process
// sees it end and does that.
#pragma once

namespace hora::os {

// `name` begins the line on standard error; it must live as long as the process. Call this before
// other threads start.
void exit_when_out_of_resources(const char* name, int exit_code);

// The same end, for a caller that cannot go on: `why` says which resource is missing.
[[noreturn]] void exit_without_resources(const char* why);

}  // namespace hora::os
