// SPDX-License-Identifier: Apache-2.0
// A process between this one and a program that must not be killed as soon as this one is gone, or
// of which nothing must be left once it is.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>

#include "launcher/process/spawn.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

struct Guarded {
  // The guard's, which leads a session and a process group of both, and takes no signal but
  // SIGKILL. It ends when the program does: with its exit code, or 128 + signal.
  pid_t pid = -1;
  os::Fd pidfd;  // only on Linux >= 5.3
  // The program is on its own as soon as this is closed, as it is when this process is killed.
  os::Fd lifeline;
  SpawnStage failed_stage = SpawnStage::kNone;
  int errnum = 0;
};

// All of the program is gone `timeout` after the lifeline's end, and some seconds in which it is
// asked to end. There is always a guard: this one starts it. Blocks until it has. `kept` are our
// ends of the program's output: while the guard has them, too, a last write does not kill it.
Guarded guard_program(const SpawnRequest& request, std::array<int, 2> kept,
                      std::chrono::milliseconds timeout);

// The opposite: when the program has ended, or the lifeline, the guard kills whatever of it lives,
// in other sessions, too: it adopts all that the program starts. Then it ends, as above.
Guarded confine_program(const SpawnRequest& request);

}  // namespace hora::launcher
