// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/collectives/control/refused_sends.h"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>

namespace hora::test {

namespace {
std::atomic<int> refusals{0};
std::atomic<int> refused_with{0};
}  // namespace

void refuse_sends(int count, int error) {
  refused_with = error;
  refusals = count;
}

int refused_sends_left() { return refusals; }

}  // namespace hora::test

// Replaces the C library's, for all of this program.
extern "C" ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  if ((flags & MSG_DONTWAIT) != 0 && hora::test::refusals > 0 && --hora::test::refusals >= 0) {
    errno = hora::test::refused_with;
    return -1;
  }
  return ::sendto(fd, bytes, size, flags, nullptr, 0);
}
