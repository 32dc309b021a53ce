// How processes that a launcher other than horarun started learn of each other. A part of the
// border (backend.h): the module that knows the launcher's library (MPI) offers it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/backends/backend.h"

namespace hora::collectives {

// Where this process is, as the launcher's library says.
struct LauncherPlace {
  std::uint32_t struct_size = sizeof(LauncherPlace);
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::int32_t cross_rank = 0;
  std::int32_t cross_size = 1;
};

// Both functions are collective over the processes that the launcher started.
struct MeetingPoint {
  // Whether a launcher of this kind started the process. Local, cheap; the text says what was seen.
  bool (*is_launched)(ErrorText& text) noexcept;
  bool (*place)(LauncherPlace* place, ErrorText& error) noexcept;
  // Gives `bytes` bytes to every process and gets theirs, by rank: received has room for all.
  bool (*allgather)(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
                    ErrorText& error) noexcept;
};

// The symbol that such a module exports.
using MeetingEntryPoint = const MeetingPoint* (*)();
#define HORA_MEETING_ENTRY_POINT "hora_meeting_point"

}  // namespace hora::collectives
