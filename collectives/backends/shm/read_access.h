// Whether the ranks of a host may read each other's memory (process_vm_readv), and if not, why: the
// kernel only says EPERM, and each of its reasons is somebody else's to change.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hora::collectives::shm {

// What the kernel asks of a process in whose memory another one wants to read. Plain data, told to
// the other ranks.
struct Standing {
  std::uint64_t user_namespace = 0;  // 0: not known
  std::uint64_t pid_namespace = 0;
  std::uint32_t user = 0;
  std::int32_t dumpable = 1;
};
Standing own_standing();

// An attempt that failed.
struct RefusedRead {
  int error = 0;          // errno; 0: it was read, and is not what that rank has there
  int error_at_self = 0;  // the same call for the reader's own memory
  int ptrace_scope = 0;   // kernel.yama.ptrace_scope; -1: there is none
  Standing reader;
  Standing target;
};
// One clause; what to do stands behind it where there is something.  [pure]
std::string explain(const RefusedRead& refused);

// What the kernel says to reading a byte of one's own memory: 0, or errno.
int error_reading_self();
int ptrace_scope();

// Why no process here may read another one's memory, as far as a process without peers can know: it
// tries its parent's. Empty: nothing speaks against it.
std::string obstacle_here();

}  // namespace hora::collectives::shm
