// SPDX-License-Identifier: Apache-2.0
// Threads: their signals, stacks and buffers.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "rendezvous/base/result.h"

namespace hora::os {

// The signal by which an agent asks a thread for its stack: a real-time signal that programs leave
// alone.

inline int stack_signal() { return SIGRTMAX - 4; }

// Room to read into, for each thread and each place in the code: made when a thread first reads
// there. A thread_local array would be cleared whenever a thread starts, and in the first thread
// when the program does, whether anything reads there or not.

// `Place` distinguishes buffers that may be in use at the same time.
template <typename Place, std::size_t kSize>
std::span<char, kSize> thread_buffer() {
  static thread_local const auto memory = std::make_unique_for_overwrite<char[]>(kSize);
  return std::span<char, kSize>(memory.get(), kSize);
}

// By default threads get as much stack as a process may have (ulimit -s), which may be very little.

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

// A thread of the library inside a user's program: it takes none of the program's signals, but
// prints its stack on request.

// The kernel refuses a thread (EAGAIN) while as many processes and threads run as it allows at one
// time: on a busy machine that passes.
constexpr std::chrono::seconds kThreadTimeout{10};

// `name`: at most 15 characters, shown by top and gdb.
Result<std::thread> start_service_thread(const char* name, std::function<void()> function,
                                         std::chrono::milliseconds timeout = kThreadTimeout);

// From now on the thread runs on that core only; so do threads that it starts later.
Status pin_thread(std::thread& thread, int core);

}  // namespace hora::os
