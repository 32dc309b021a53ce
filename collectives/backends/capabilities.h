// SPDX-License-Identifier: Apache-2.0
// Helpers for the end of a backend's file, which says what the backend offers.
#pragma once

#include <array>

#include "collectives/backend.h"

namespace hora::collectives {

// A row like `sample` for every operation of hora.h.
constexpr std::array<Capability, 6> rows_for_all_operations(const Capability& sample) {
  std::array<Capability, 6> rows{};
  constexpr hora_operation kAll[] = {HORA_ALLREDUCE, HORA_ALLGATHER,     HORA_BROADCAST,
                                     HORA_ALLTOALL,  HORA_REDUCESCATTER, HORA_BARRIER};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = sample;
    rows[i].operation = kAll[i];
  }
  return rows;
}

// For backends that need nothing beyond libhora itself.
inline const char* no_version() noexcept { return ""; }
inline bool always_usable(const ProbeContext&, ErrorText&) noexcept { return true; }

// A descriptor without `create` and `connect`, which the caller sets.
template <std::size_t kCount>
constexpr BackendDescriptor descriptor_of(
    const char* id, const char* label, const std::array<Capability, kCount>& rows,
    decltype(BackendDescriptor::version) version = no_version,
    decltype(BackendDescriptor::probe) probe = always_usable) {
  return {kBorderVersion, sizeof(BackendDescriptor),         id,      label,  version, probe,
          rows.data(),    static_cast<std::int32_t>(kCount), nullptr, nullptr};
}

constexpr BackendDescriptor with_traits(BackendDescriptor descriptor, std::uint32_t traits) {
  descriptor.traits = traits;
  return descriptor;
}

template <std::size_t kCount>
constexpr BackendDescriptor backend_descriptor(
    const char* id, const char* label, const std::array<Capability, kCount>& rows,
    decltype(BackendDescriptor::create) create,
    decltype(BackendDescriptor::version) version = no_version,
    decltype(BackendDescriptor::probe) probe = always_usable) {
  BackendDescriptor descriptor = descriptor_of(id, label, rows, version, probe);
  descriptor.create = create;
  return descriptor;
}

template <std::size_t kCount>
constexpr BackendDescriptor peer_links_descriptor(
    const char* id, const char* label, const std::array<Capability, kCount>& rows,
    decltype(BackendDescriptor::connect) connect,
    decltype(BackendDescriptor::version) version = no_version,
    decltype(BackendDescriptor::probe) probe = always_usable) {
  BackendDescriptor descriptor = descriptor_of(id, label, rows, version, probe);
  descriptor.connect = connect;
  return descriptor;
}

}  // namespace hora::collectives
