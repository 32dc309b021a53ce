// SPDX-License-Identifier: Apache-2.0
// The default of the C library comes from RLIMIT_STACK at the start of the process, so this changes
// the default attributes instead of those of each thread, which libraries create, too.
#include "rendezvous/os/thread_stacks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>

namespace hora::os {

void give_threads_stacks() {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  unsigned long size = 0;
  // Only ever raised: a user may have asked for more. A failure leaves the default.
  if (::pthread_attr_getstacksize(&attributes, &size) == 0 && size < kThreadStack &&
      ::pthread_attr_setstacksize(&attributes, kThreadStack) == 0) {
    (void)::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
}

bool has_room_for_stack() {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return true;
  unsigned long size = 0;
  ::pthread_attr_getstacksize(&attributes, &size);
  ::pthread_attr_destroy(&attributes);
  // As the C library asks for one.
  void* const stack = ::mmap(nullptr, size, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return errno != ENOMEM;
  ::munmap(stack, size);
  return true;
}

}  // namespace hora::os
