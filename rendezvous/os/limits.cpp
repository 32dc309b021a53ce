// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

#include "rendezvous/os/threads.h"

namespace hora::os {

// A launcher holds several descriptors per host, and a rendezvous one per rank.

std::size_t raise_file_limit(std::size_t least) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  // The soft limit is low (1024) for the sake of select(), which nothing here uses.
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(least, limit.rlim_max);
  if (raised.rlim_cur > limit.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<std::size_t>(limit.rlim_cur);
}

// Everything here works without memory: write(2) and _exit(2), no streams, no destructors.

namespace {

const char* program = "";
int last_code = 1;

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

[[noreturn]] void on_no_memory() {
  exit_without_resources("no memory is left (the machine's, or that of ulimit -v)");
}

// Among uncaught exceptions, a system_error of std::thread is not a bug of the program: it means
// that there is no thread left.
[[noreturn]] void on_terminate() {
  if (const auto problem = std::current_exception()) {
    try {
      std::rethrow_exception(problem);
    } catch (const std::system_error& error) {
      // The C library tries clone() only where the kernel does not know clone3().
      if (error.code().value() == EPERM) {
        exit_without_resources(
            "a sandbox forbids threads: its seccomp filter answers clone3() with EPERM, and should "
            "with ENOSYS (a newer Docker, Podman or libseccomp does)");
      }
      if (!has_room_for_stack()) exit_without_resources(kNoRoomForStack);
      exit_without_resources(
          "no thread can be started (the machine's limit, or that of ulimit -u)");
    } catch (...) {
      std::abort();
    }
  }
  // Any other exception is a bug: end with a core dump.
  std::abort();
}

}  // namespace

void exit_when_out_of_resources(const char* name, int exit_code) {
  program = name;
  last_code = exit_code;
  // operator new calls the first handler; std::thread throws, and ends up in the second.
  std::set_new_handler(on_no_memory);
  std::set_terminate(on_terminate);
}

void exit_without_resources(const char* why) {
  say(program);
  say(": error: ");
  say(why);
  say("\n");
  ::_exit(last_code);
}

}  // namespace hora::os
