// SPDX-License-Identifier: Apache-2.0
// getrandom(2) needs no descriptor and no /dev, so it also works in a bare container.
#include "rendezvous/os/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/encoding.h"

namespace hora::os {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t filled = 0;
  while (filled < count) {
    // More than 256 bytes may come in parts, or a signal may interrupt the call.
    const ssize_t got = ::getrandom(bytes.data() + filled, count - filled, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      std::perror("getrandom");
      // A job without secrets must not run: anyone could join it.
      std::abort();
    }
    filled += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string random_token() { return to_hex(random_bytes(16)); }

}  // namespace hora::os
