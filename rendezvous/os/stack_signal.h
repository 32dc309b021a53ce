// SPDX-License-Identifier: Apache-2.0
// The signal by which an agent asks a thread for its stack: a real-time signal that programs leave
// alone.
#pragma once

#include <signal.h>

namespace hora::os {

inline int stack_signal() { return SIGRTMAX - 4; }

}  // namespace hora::os
