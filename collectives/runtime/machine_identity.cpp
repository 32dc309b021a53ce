// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/machine_identity.h"

#include <sys/stat.h>

#include <fstream>

namespace hora::collectives {

// The boot id distinguishes machines; /dev/shm distinguishes containers on one machine, which do
// not share memory unless they share that mount.
std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shared_memory {};
  stat("/dev/shm", &shared_memory);
  return boot + "/" + std::to_string(shared_memory.st_dev) + "/" +
         std::to_string(shared_memory.st_ino);
}

}  // namespace hora::collectives
