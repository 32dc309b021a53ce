// SPDX-License-Identifier: Apache-2.0
// How processes that a launcher other than horarun started find each other. Part of the border
// (backend.h): the module that knows the launcher's library (MPI) offers it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/backend.h"

namespace hora::collectives {

// This process's place, according to the launcher's library.
struct LauncherPlace {
  std::uint32_t struct_size = sizeof(LauncherPlace);
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::int32_t cross_rank = 0;
  std::int32_t cross_size = 1;
};

// Computes the place among the hosts from each rank's first rank of its host and each rank's local
// rank. It counts as horarun does: among the hosts that have a rank of this local rank.
inline void find_cross_place(const std::int32_t* first_of_host, const std::int32_t* local_ranks,
                             LauncherPlace& place) {
  place.cross_rank = 0;
  place.cross_size = 0;
  for (std::int32_t rank = 0; rank < place.size; ++rank) {
    if (local_ranks[rank] != place.local_rank) continue;
    ++place.cross_size;
    if (first_of_host[rank] < first_of_host[place.rank]) ++place.cross_rank;
  }
}

// The last two functions are collective over the processes that the launcher started.
struct LauncherBootstrap {
  // Whether a launcher of this kind started the process. Local and cheap; the text says what it
  // saw.
  bool (*is_launched)(ErrorText& text) noexcept;
  bool (*place)(LauncherPlace* place, ErrorText& error) noexcept;
  // Gives `bytes` bytes to every process and collects theirs, by rank; `received` has room for all.
  bool (*allgather)(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
                    ErrorText& error) noexcept;
};

// The symbol that such a module exports.
using LauncherBootstrapEntryPoint = const LauncherBootstrap* (*)();
#define HORA_BOOTSTRAP_ENTRY_POINT "hora_launcher_bootstrap"

}  // namespace hora::collectives
