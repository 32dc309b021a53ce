// SPDX-License-Identifier: Apache-2.0
// The shim: the process that is executed on a host. It forks the agent and does one thing, which is
// to outlive it: when the agent dies by force, the shim ends every process of the job and removes
// what the agent had on disk, and only then exits. It holds the protocol stream open but never
// reads or writes it, so that the end of the stream means to the launcher that the host is clean.
// When the shim dies, the agent sees its pipe close and ends the job in turn.
#pragma once

#include <limits.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "launcher/process/one_cpu.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Memory that shim and agent share. The agent writes each text once, before what it names
// exists; the shim reads them after the agent's death.
struct ShimState {
  std::atomic<int> finished;    // 1: the agent has cleaned up by itself
  std::atomic<int> timeout_ms;  // how long the agent may need once the launcher is gone
  char mark[80];                // "HORA_AGENT_MARK=<random>": in the environment of all ranks
  char cgroup[PATH_MAX];
  char job_directory[PATH_MAX];
  // Entries in the cache, of one bundle.
  struct BundleSlots {
    // While it is being made; two while it moves from one directory to the next.
    char unfinished_entries[2][PATH_MAX];
    char use_marks[2][PATH_MAX];  // where the agent lies, where the bundle does
  };
  BundleSlots runtime;
  BundleSlots tree;         // the user's folders
  BundleSlots environment;  // his Python environment
};

// Copies into one of the texts above; false (and an empty text) when it is too long.
bool set_shared_text(char (&text)[PATH_MAX], const std::string& value);

// A stopped process sees nothing. From now on the kernel continues this one whenever something
// comes through `fd`, or its other end is closed. Where the kernel cannot, it stays stopped. The
// program calls this for its standard input, the stream, as early as it can; an agent that the shim
// forks stays stopped until the shim continues it, as its launcher expects.
void be_continued_by(int fd);

// In the agent: the shim leaves `place` at once, not after a while, because the ranks start
// everywhere, and the end of the agent runs there, too.
void take_shim_along(const OneCpu& place);

// Never returns to its caller in the shim; `agent_main` is called in the agent, whose exit status
// its result becomes. `shim_alive` reads as closed once the shim is gone; `place` is where both
// begin, or null, and each leaves it by itself.
// The result is the exit code of this process.
using AgentMain = std::function<int(ShimState&, os::Fd shim_alive, std::unique_ptr<OneCpu> place)>;
int run_with_shim(std::unique_ptr<OneCpu> place, const AgentMain& agent_main);

}  // namespace hora::launcher
