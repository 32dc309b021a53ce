// SPDX-License-Identifier: Apache-2.0
// Threads that the kernel refuses for a while.
#include "rendezvous/os/threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "rendezvous/os/files.h"
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

// Replaces the C library's, for all of this program.
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
    while (name.compare(0, 9, "hora-test") != 0) {  // its starter names it
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

TEST_CASE("no address space for a stack is an error at once: waiting would not help") {
  // In a process of its own, whose limit need not be raised again.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Larger than any that the C library keeps of threads that have ended.
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, std::size_t{256} << 20);
    ::pthread_setattr_default_np(&large);
    // Room for small objects, and for no stack.
    const std::string pages = os::read_file("/proc/self/statm").value();
    const rlim_t most =
        std::stoul(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (512u << 10);
    const rlimit limit{most, most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0 || os::has_room_for_stack()) ::_exit(1);
    const auto thread = os::start_service_thread(
        "hora-test", [] {}, std::chrono::hours(1));
    const bool reported = !thread && thread.error().errnum == ENOMEM &&
                          thread.error().message.find(os::kNoRoomForStack) != std::string::npos;
    ::_exit(reported ? 0 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(os::has_room_for_stack());
}
