// SPDX-License-Identifier: Apache-2.0
// Exchanges of short texts between all ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/launcher_bootstrap.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

// The functions of a LauncherBootstrap for an exchange of texts.

class TextAllgather {
 public:
  virtual ~TextAllgather() = default;
  virtual int rank() const = 0;
  // This rank's text to all others, and theirs, by rank.
  virtual Result<std::vector<std::string>> allgather(std::string_view mine, Deadline deadline) = 0;

  // As in LauncherBootstrap. Notes are zero-terminated text in a fixed size; what travels is the
  // text alone.
  bool gather_notes(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
                    ErrorText& error) noexcept;
  bool find_place(LauncherPlace* place, std::chrono::milliseconds timeout,
                  ErrorText& error) noexcept;
};

// A world of processes that the program itself has chosen, such as a communicator of MPI's: several
// such worlds can train side by side in one job. The program gives the rank of this process and an
// exchange among the members; all else is as under another launcher.

struct CallersWorld {
  int rank = 0;
  int size = 1;
  // Gives `bytes` bytes of each member to all, by rank; anything but 0 is a failure.
  int (*allgather)(void* context, const void* data, std::size_t bytes, void* received,
                   std::int64_t timeout_ms) = nullptr;
  void* context = nullptr;
};

// One at a time: valid until the next call. `timeout`: for the first exchange.
const LauncherBootstrap& callers_exchange(const CallersWorld& world,
                                          std::chrono::milliseconds timeout);

}  // namespace hora::collectives
