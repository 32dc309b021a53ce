// SPDX-License-Identifier: Apache-2.0
// A thread of the library inside somebody else's program: it takes none of the program's signals,
// but says where it stands when it is asked (stack_signal.h).
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "rendezvous/base/result.h"

namespace hora::os {

// The kernel refuses a thread (EAGAIN) while as many processes and threads run as it allows at one
// time: on a busy machine that passes.
constexpr std::chrono::seconds kThreadPatience{10};

// `name`: at most 15 characters, shown by top and gdb.
Result<std::thread> start_service_thread(const char* name, std::function<void()> function,
                                         std::chrono::milliseconds patience = kThreadPatience);

// From now on the thread runs on that core only; so do threads that it starts later.
Status pin_thread(std::thread& thread, int core);

}  // namespace hora::os
