#include "rendezvous/os/fd.h"

#include <unistd.h>

namespace hora::os {

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace hora::os
