// SPDX-License-Identifier: Apache-2.0
// Numbers of system calls for C libraries that are older than the kernels that have them; the same
// on every architecture. Callers bear ENOSYS.
#pragma once

#include <sys/syscall.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424  // Linux 5.1
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // Linux 5.3
#endif
#ifndef SYS_close_range
#define SYS_close_range 436  // Linux 5.9
#endif
