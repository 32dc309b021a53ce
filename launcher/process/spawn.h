// SPDX-License-Identifier: Apache-2.0
// Starts processes without fork(): a child borrows the parent's memory until it executes
// (CLONE_VM), so a launcher of a gigabyte starts processes as quickly as a small one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>

#include "launcher/process/cpu_mask.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// What to start. Pointers must live until the child has executed. The child starts with default
// signal dispositions, an empty signal mask, and no descriptor but 0, 1, 2 and `extra_fd`.
struct SpawnRequest {
  const char* program = nullptr;  // a path, no PATH search; relative to working_directory_fd
  char* const* argv = nullptr;    // null-terminated
  char* const* envp = nullptr;    // null-terminated
  int stdin_fd = -1;              // each is duplicated; the caller keeps its own
  int stdout_fd = -1;
  int stderr_fd = -1;
  int extra_fd = -1;              // becomes 3 in the child; -1: none
  int working_directory_fd = -1;  // -1: the caller's
  int cgroup_fd = -1;             // directory of a cgroup v2 to be born in; -1: the caller's
  const CpuMask* cpus = nullptr;  // where it may run; null: where the caller may
  bool resets_signals = true;     // false: none is ignored here, or the program sees to it
  bool new_session = true;        // also its own process group, and no terminal
  bool takes_terminal = false;    // stdin is a terminal, which becomes that of the new session
  bool new_group = false;         // its own process group in the caller's session
  bool die_with_parent = false;   // SIGKILL when the calling thread ends
  std::optional<unsigned long> open_files_limit;  // soft RLIMIT_NOFILE of the child
  bool want_pidfd = false;
};

struct SpawnOutcome {
  pid_t pid = -1;
  os::Fd pidfd;                                 // only when asked for, and on Linux >= 5.3
  SpawnStage failed_stage = SpawnStage::kNone;  // the first step of the child that failed
  int errnum = 0;                               // of that step
  bool ok() const { return failed_stage == SpawnStage::kNone; }
};

// Blocks for the fraction of a millisecond until the child has executed or failed; a child that
// failed is reaped already. Thread-safe.
SpawnOutcome spawn(const SpawnRequest& request);

// The same in two steps, so that several children start side by side: on a busy machine each one
// has to wait until the kernel lets it run, and they wait at the same time.
class Spawning {
 public:
  // The descriptors of `request` may be closed when this returns; its pointers must live until
  // finish().
  explicit Spawning(const SpawnRequest& request);
  // Waits like finish(), and kills a child whose result was not requested.
  ~Spawning();
  Spawning(Spawning&&) noexcept;
  Spawning& operator=(Spawning&&) = delete;

  // Blocks until the child has executed or failed; once.
  SpawnOutcome finish();

 private:
  struct Child;
  std::unique_ptr<Child> child_;
};

}  // namespace hora::launcher
