// SPDX-License-Identifier: Apache-2.0
// The pipes between the agent and one rank: its standard streams.
#pragma once

#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Owns all ends; the rank's close when this object does, after the rank has its copies.
struct RankPipes {
  os::Fd stdin_read, stdin_write;  // invalid for a rank that reads /dev/null
  os::Fd stdout_read, stdout_write;
  os::Fd stderr_read, stderr_write;  // invalid for a rank with a terminal

  // All ends are close-on-exec; the agent's do not block. Returns an errno, 0 when all are there.
  int open(bool with_stdin);
  // The same with a terminal in place of the pipes: stdout_write is the rank's end of it.
  int open_terminal(int rows, int columns);
};

}  // namespace hora::launcher
