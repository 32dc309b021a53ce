// SPDX-License-Identifier: Apache-2.0
// A world of processes that the program itself has chosen, such as a communicator of MPI's: several
// such worlds can train side by side in one job. The program says who this process is and lends an
// exchange among the members; all else is as under a launcher of another make.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "collectives/launcher_bootstrap.h"

namespace hora::collectives {

struct CallersWorld {
  int rank = 0;
  int size = 1;
  // Gives `bytes` bytes of each member to all, by rank; anything but 0 is a failure.
  int (*allgather)(void* context, const void* data, std::size_t bytes, void* received,
                   std::int64_t timeout_ms) = nullptr;
  void* context = nullptr;
};

// One at a time: valid until the next call. `patience`: for the first exchange.
const LauncherBootstrap& callers_exchange(const CallersWorld& world,
                                          std::chrono::milliseconds patience);

}  // namespace hora::collectives
