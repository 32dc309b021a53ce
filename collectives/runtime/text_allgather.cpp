// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/text_allgather.h"

#include <cstring>
#include <exception>

#include "collectives/runtime/launcher_place.h"
#include "collectives/runtime/machine_identity.h"

namespace hora::collectives {

bool TextAllgather::gather_notes(const void* data, std::size_t bytes, void* received,
                                 std::int64_t timeout_ms, ErrorText& error) noexcept {
  try {
    std::string_view mine(static_cast<const char*>(data), bytes);
    while (!mine.empty() && mine.back() == '\0') mine.remove_suffix(1);
    const auto all = allgather(mine, Clock::now() + std::chrono::milliseconds(timeout_ms));
    if (!all) return error.set("%s", all.error().message.c_str());
    std::memset(received, 0, bytes * all->size());
    char* place = static_cast<char*>(received);
    for (const std::string& each : *all) {
      each.copy(place, bytes - 1);  // whatever another rank sends, it is terminated here
      place += bytes;
    }
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

bool TextAllgather::find_place(LauncherPlace* place, std::chrono::milliseconds patience,
                               ErrorText& error) noexcept {
  try {
    const auto machines = allgather(machine_identity(), Clock::now() + patience);
    if (!machines) return error.set("%s", machines.error().message.c_str());
    *place = place_among(*machines, rank());
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

}  // namespace hora::collectives
