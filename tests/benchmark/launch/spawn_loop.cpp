// SPDX-License-Identifier: Apache-2.0
// The floor under any launcher: starts N copies of a program and waits for them, nothing else.
//   spawn_loop N PROGRAM [ARGUMENT...]
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern char** environ;

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: spawn_loop N PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  const int count = std::atoi(argv[1]);
  for (int i = 0; i < count; ++i) {
    pid_t pid = 0;
    const int error = ::posix_spawnp(&pid, argv[2], nullptr, nullptr, argv + 2, environ);
    if (error != 0) {
      std::fprintf(stderr, "spawn_loop: %s: %s\n", argv[2], std::strerror(error));
      return 127;
    }
  }
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    int status = 0;
    if (::wait(&status) < 0 || status != 0) failed = 1;
  }
  return failed;
}
