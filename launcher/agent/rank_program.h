// SPDX-License-Identifier: Apache-2.0
// Which file a rank executes, and why one could not be executed: facts for RankExit.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "launcher/process/program_search.h"
#include "launcher/process/spawn.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Ranks may have different PATHs; most share one, so each is searched once. One thread at a time.
class ProgramTable {
 public:
  // `directory_fd`: what a relative path or entry of PATH counts from. The same for all calls.
  const ProgramSearch& find(const std::string& name, std::string_view path_variable,
                            int directory_fd);

 private:
  std::unordered_map<std::string, ProgramSearch> searched_;  // by name and PATH
};

// The end of a rank that was never started: class and exit code follow from stage and errno.
RankExit not_started(SpawnStage stage, int errnum, std::string program = {});

// The same for a process that spawn() could not make. Looks at the file again, relative to
// `directory_fd`, when the kernel's errno does not distinguish the program from its interpreter.
RankExit not_spawned(const SpawnOutcome& outcome, const std::string& program, int directory_fd);

// The pipes between the agent and one rank: its standard streams.

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
