// A thread of the library inside somebody else's program: it takes none of the program's signals,
// but says where it stands when it is asked (stack_signal.h).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

#include "rendezvous/os/stack_signal.h"

namespace hora::os {

// `name`: at most 15 characters, shown by top and gdb.
template <typename Function>
std::thread start_service_thread(const char* name, Function&& function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, stack_signal());
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Function>(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace hora::os
