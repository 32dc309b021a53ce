// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/rank_pipes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hora::launcher {

namespace {

bool make_pipe(os::Fd& read_end, os::Fd& write_end, bool agent_reads) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end = os::Fd(ends[0]);
  write_end = os::Fd(ends[1]);
  // Only the agent's end: O_NONBLOCK belongs to the open file description, and programs do not
  // expect it of their standard streams.
  const int ours = agent_reads ? ends[0] : ends[1];
  return ::fcntl(ours, F_SETFL, O_NONBLOCK | (agent_reads ? O_RDONLY : O_WRONLY)) == 0;
}

}  // namespace

int RankPipes::open(bool with_stdin) {
  const bool made = make_pipe(stdout_read, stdout_write, true) &&
                    make_pipe(stderr_read, stderr_write, true) &&
                    (!with_stdin || make_pipe(stdin_read, stdin_write, false));
  return made ? 0 : errno;
}

}  // namespace hora::launcher
