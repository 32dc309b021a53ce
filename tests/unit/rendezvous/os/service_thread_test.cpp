// SPDX-License-Identifier: Apache-2.0
// Threads that the kernel refuses for a while.
#include "rendezvous/os/service_thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "rendezvous/os/stack_signal.h"
#include "tests/support/catch.h"

using namespace hora;
using std::chrono::milliseconds;

namespace {

std::atomic<int> refusals{0};  // still to come

bool blocks(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

}  // namespace

// In the place of the C library's, for all of this program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  if (refusals > 0) {
    --refusals;
    return EAGAIN;
  }
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}

TEST_CASE("a thread that the kernel refuses for a while is started when it lets us") {
  refusals = 5;
  std::string name(16, '\0');
  bool held = false;
  bool let_in = false;
  auto thread = os::start_service_thread("hora-test", [&] {
    while (name.compare(0, 9, "hora-test") != 0) {  // it is named by whoever starts it
      ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    }
    held = blocks(SIGTERM);
    let_in = !blocks(os::stack_signal());
  });
  CHECK(refusals == 0);
  REQUIRE(thread);
  thread->join();
  CHECK(held);
  CHECK(let_in);
  CHECK_FALSE(blocks(SIGTERM));
}

TEST_CASE("a thread that cannot be had is an error that names it; signals come in again") {
  refusals = 1'000'000;
  const auto thread = os::start_service_thread(
      "hora-test", [] {}, milliseconds(20));
  CHECK(refusals > 0);
  refusals = 0;
  REQUIRE_FALSE(thread);
  CHECK(thread.error().message ==
        "starting the thread hora-test: Resource temporarily unavailable");
  CHECK_FALSE(blocks(SIGTERM));
}
