// SPDX-License-Identifier: Apache-2.0
// By default threads get as much stack as a process may have (ulimit -s), which may be very little.
#pragma once

namespace hora::os {

// After give_threads_stacks() new threads have at least kThreadStack bytes of stack, whatever the
// limit.
inline constexpr unsigned long kThreadStack = 1ul << 20;
void give_threads_stacks();

}  // namespace hora::os
