// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of a host may read each other's memory (process_vm_readv), and if not, why. The
// kernel only says EPERM, and a different person can change each of its reasons.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hora::collectives::shm {

// What the kernel checks about a process whose memory another one wants to read. Plain data, which
// travels to the other ranks.
struct Standing {
  std::uint64_t user_namespace = 0;  // inode number; 0: unknown
  std::uint64_t pid_namespace = 0;
  std::uint32_t user = 0;
  std::int32_t dumpable = 1;
};
Standing own_standing();

// An attempt that failed.
struct RefusedRead {
  int error = 0;          // errno; 0: the read worked, but found other bytes than expected
  int error_at_self = 0;  // the same call for the reader's own memory
  int ptrace_scope = 0;   // kernel.yama.ptrace_scope; -1: the kernel has none
  Standing reader;
  Standing target;
};
// One clause; it ends with what to do where there is something.  [pure]
std::string explain(const RefusedRead& refused);

// Tries to read a byte of this process's own memory: 0, or errno.
int error_reading_self();
int ptrace_scope();

// Why no process here may read another one's memory, as far as a process without peers can know: it
// tries its parent's. Empty: there is no known obstacle.
std::string obstacle_here();

}  // namespace hora::collectives::shm
