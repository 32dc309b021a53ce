// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/fd.h"

#include <unistd.h>

#include <cerrno>

namespace hora::os {

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

int Fd::close() {
  if (fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR) return 0;
  return errno;
}

}  // namespace hora::os
