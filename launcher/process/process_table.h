// SPDX-License-Identifier: Apache-2.0
// The machine's processes as /proc shows them, and how to signal exactly the one that was meant.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/protocol/silence.h"

namespace hora::launcher {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  char state = '?';                 // R S D Z T ...; see read_process()
  std::uint64_t started_ticks = 0;  // since boot; with pid, the identity of a process
  int threads = 1;
  bool is_zombie() const { return state == 'Z' || state == 'X'; }
  friend bool operator==(const ProcessEntry&, const ProcessEntry&) = default;
};

// The text of /proc/PID/stat; nothing when it is malformed.  [pure]
std::optional<ProcessEntry> parse_process_stat(std::string_view text);

// A process whose main thread has ended lives on in its other threads, though its stat says Z: the
// state is then that of one of those.
std::optional<ProcessEntry> read_process(pid_t pid);

// What a process has used up to now.
struct ProcessUsage {
  std::int64_t cpu_ms = 0;     // also of the children that were waited for
  std::int64_t rss_bytes = 0;  // pages that processes share count in each
};
// Nothing when it is gone.
std::optional<ProcessUsage> read_usage(pid_t pid);

// Nothing when the table cannot be read, since descriptors or memory have run out: processes may
// live all the same.
std::optional<std::vector<ProcessEntry>> list_processes();

// The same without processes that are older than `first`, which lives, as far as their numbers
// show: a job of a second need not read about the thousand threads of the kernel. Others that are
// older may be in the list.
std::optional<std::vector<ProcessEntry>> list_processes_since(const ProcessEntry& first);

// Whether a process that was made after `first` surely has a larger number: numbers are given out
// in a circle of `circle` numbers, `last` is the newest one, and `first` is `age_s` old.  [pure]
bool numbers_ascend_since(pid_t first, double age_s, pid_t last, pid_t circle);

// In /proc/PID/task. Empty when the process is gone, nothing as with list_processes().
std::optional<std::vector<pid_t>> list_threads(pid_t pid);

// As the kernel lists them, without a look at every process, including those that have ended and
// were not reaped. Nothing on a kernel that has no such list (CONFIG_PROC_CHILDREN).
std::optional<std::vector<pid_t>> list_children(pid_t pid);

// The descendants of `root` in `all`, without root itself. [pure]
std::vector<ProcessEntry> descendants_of(pid_t root, const std::vector<ProcessEntry>& all);

// Whether a mask of /proc/PID/status, such as "SigBlk", has the signal.  [pure]
bool has_signal(std::string_view status, std::string_view mask, int signal);
// Whether the process has a handler for the signal, which may end it otherwise.
bool handles_signal(pid_t pid, int signal);

// For a process that shares our PID namespace. If /proc does not know (another namespace's is
// mounted, it is hidden, or descriptors or memory have run out), a process that exists counts as at
// work.
Pulse pulse_of(pid_t pid);

// Whether the process was started with the environment string `mark` ("NAME=VALUE"). False when
// its environment may not be read.
bool environment_has(pid_t pid, std::string_view mark);

// Sends `signal` to that very process, never to one that got its number later. False: it is gone.
bool signal_process(const ProcessEntry& process, int signal);

}  // namespace hora::launcher
