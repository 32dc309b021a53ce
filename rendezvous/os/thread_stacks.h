// Threads get as much stack as a process may have (ulimit -s), which may be next to nothing.
#pragma once

namespace hora::os {

// Threads that are made from now on have at least kThreadStack, whatever the limit.
inline constexpr unsigned long kThreadStack = 1ul << 20;
void give_threads_stacks();

}  // namespace hora::os
