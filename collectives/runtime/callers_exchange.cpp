// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/callers_exchange.h"

#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "collectives/runtime/rank_location.h"

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

bool TextAllgather::find_place(LauncherPlace* place, std::chrono::milliseconds timeout,
                               ErrorText& error) noexcept {
  try {
    const auto machines = allgather(machine_identity(), Clock::now() + timeout);
    if (!machines) return error.set("%s", machines.error().message.c_str());
    *place = place_among(*machines, rank());
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

namespace {

// The functions of a LauncherBootstrap take no context.
struct Current {
  CallersWorld world;
  std::chrono::milliseconds timeout{0};
};
Current& current() {
  static Current self;
  return self;
}

bool is_launched(ErrorText&) noexcept { return true; }

bool allgather(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
               ErrorText& error) noexcept {
  const CallersWorld& world = current().world;
  if (world.allgather(world.context, data, bytes, received, timeout_ms) == 0) return true;
  return error.set("the %d processes that init was given could not exchange their addresses",
                   world.size);
}

bool find_place(LauncherPlace* place, ErrorText& error) noexcept {
  try {
    const CallersWorld& world = current().world;
    using Name = std::array<char, 256>;
    Name own{};
    machine_identity().copy(own.data(), own.size() - 1);
    std::vector<Name> all(static_cast<std::size_t>(world.size));
    if (!allgather(own.data(), own.size(), all.data(), current().timeout.count(), error)) {
      return false;
    }
    std::vector<std::string> machines;
    for (const Name& each : all) machines.emplace_back(each.data());
    *place = place_among(machines, world.rank);
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

constexpr LauncherBootstrap kCallersExchange = {is_launched, find_place, allgather};

}  // namespace

const LauncherBootstrap& callers_exchange(const CallersWorld& world,
                                          std::chrono::milliseconds timeout) {
  current() = {world, timeout};
  return kCallersExchange;
}

}  // namespace hora::collectives
