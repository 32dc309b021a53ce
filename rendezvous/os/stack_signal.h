// The signal by which an agent asks a thread where it stands: real-time, and left alone by
// programs.
#pragma once

#include <signal.h>

namespace hora::os {

inline int stack_signal() { return SIGRTMAX - 4; }

}  // namespace hora::os
