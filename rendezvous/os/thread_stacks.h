// SPDX-License-Identifier: Apache-2.0
// By default threads get as much stack as a process may have (ulimit -s), which may be very little.
#pragma once

namespace hora::os {

// After give_threads_stacks() new threads have at least kThreadStack bytes of stack, whatever the
// limit.
inline constexpr unsigned long kThreadStack = 1ul << 20;
void give_threads_stacks();

// Whether the address space (ulimit -v) has room for the stack of one more thread. The C library
// says EAGAIN when it has none, as it does where there are too many threads; but that may pass, and
// this does not. Needs no memory.
bool has_room_for_stack();
inline constexpr const char* kNoRoomForStack =
    "no memory for the stack of a thread is left (ulimit -v)";

}  // namespace hora::os
