// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::os {

// The default of the C library comes from RLIMIT_STACK at the start of the process, so this changes
// the default attributes instead of those of each thread, which libraries create, too.

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
  if (stack == MAP_FAILED) {
    if (errno != ENOMEM) return true;
    // Without such a limit, the kernel has no memory for its own records at this moment.
    rlimit space{};
    return ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY;
  }
  ::munmap(stack, size);
  return true;
}

// Threads of a library inside a user's program: they must not take the program's signals, and a
// machine that has no resources for a thread at this moment (EAGAIN) must not cause a failure at
// once.

namespace {

// A new thread inherits the mask of its creator. All signals stay blocked in it, except the one by
// which the agent asks for stacks.
class QuietMask {
 public:
  QuietMask() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, stack_signal());
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~QuietMask() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  QuietMask(const QuietMask&) = delete;
  QuietMask& operator=(const QuietMask&) = delete;

 private:
  sigset_t before_;
};

// 0, or the error: EAGAIN where it may go better in a while.
int try_start(std::thread& thread, const std::function<void()>& function) {
  const QuietMask mask;
  try {
    thread = std::thread(function);
    return 0;
  } catch (const std::system_error& refused) {
    const int errnum = refused.code().value();
    return errnum == EAGAIN && !has_room_for_stack() ? ENOMEM : errnum;
  }
}

}  // namespace

Result<std::thread> start_service_thread(const char* name, std::function<void()> function,
                                         std::chrono::milliseconds timeout) {
  std::thread thread;
  const int refused =
      retry_while_refused([&] { return try_start(thread, function); }, Clock::now() + timeout);
  if (refused != 0) {
    Error error = errno_error(refused, std::string("starting the thread ") + name);
    if (refused == ENOMEM) error.message += std::string(": ") + kNoRoomForStack;
    return error;
  }
  // Shown by ps, gdb and the hang report; the kernel keeps 15 characters.
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

Status pin_thread(std::thread& thread, int core) {
  // A set of its own size: cpu_set_t ends at 1024 cores.
  const auto cores = static_cast<std::size_t>(core) + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(cores), [](cpu_set_t* each) { CPU_FREE(each); });
  if (set == nullptr) return errno_error(ENOMEM, "pinning a thread");
  const std::size_t bytes = CPU_ALLOC_SIZE(cores);
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(static_cast<std::size_t>(core), bytes, set.get());
  const int refused = ::pthread_setaffinity_np(thread.native_handle(), bytes, set.get());
  if (refused != 0) return errno_error(refused, "core " + std::to_string(core));
  return Ok{};
}

}  // namespace hora::os
