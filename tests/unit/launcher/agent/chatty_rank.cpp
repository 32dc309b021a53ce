// SPDX-License-Identifier: Apache-2.0
// chatty_rank SEED BYTES [kill]: writes that many pseudo-random bytes, half of them to standard
// error, in writes of all sizes; then kills itself if asked.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/unit/launcher/agent/chatter.h"

namespace {

void write_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t wrote = ::write(fd, bytes, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) ::_exit(1);
    bytes += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto seed = static_cast<std::uint32_t>(std::atoi(argv[1]));
  const std::size_t half = static_cast<std::size_t>(std::atoll(argv[2])) / 2;
  hora::test::Chatter out(seed * 2);
  hora::test::Chatter err(seed * 2 + 1);
  static char chunk[300'000];
  std::size_t done = 0;
  std::size_t step = 1;
  while (done < half) {
    const std::size_t size = std::min(step, half - done);
    out.fill(chunk, size);
    write_all(STDOUT_FILENO, chunk, size);
    err.fill(chunk, size);
    write_all(STDERR_FILENO, chunk, size);
    done += size;
    step = step * 7 % 299'993 + 1;
  }
  if (argc > 3 && std::strcmp(argv[3], "kill") == 0) ::kill(::getpid(), SIGKILL);
  return 0;
}
