// SPDX-License-Identifier: Apache-2.0
// The backends, by name, and what each of them can do.
#pragma once

#include <array>
#include <span>
#include <string>

#include "collectives/backend.h"
#include "collectives/launcher_bootstrap.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// Helpers for the end of a backend's file, which says what the backend offers.

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

// Every backend that this version of Hora knows, built or not, and how to get its descriptor.

struct BackendRow {
  const char* id;
  const BackendDescriptor* (*linked)();  // null: not linked in
  const char* module;                    // file name of the loadable module; null: none
  const char* why_not_built;             // null: built
  // Whether this process may need it; decided without loading anything. Null: it may.
  bool (*called_for)(ErrorText& why_not) noexcept;
};

// The build generates the rows from the hora_add_backend() lines of backends/CMakeLists.txt.
std::span<const BackendRow> backend_rows();
const BackendRow* find_backend_row(std::string_view id);

// Returns the descriptor: of a linked backend at once, of a module after loading it on the first
// call, from the folder of libhora (or HORA_MODULE_PATH); later calls return the same answer.
// kNotFound when it was not built or its file is missing, kUnavailable when something that it needs
// is missing; the text says what. Any thread may call it.
Result<const BackendDescriptor*> load_backend(const BackendRow& row);

// Whether this process may need the backend, without loading anything. If not, `why_not` says why.
// A module's libraries may crash the process, so it stays unloaded when it has no use.
inline bool is_called_for(const BackendRow& row, ErrorText& why_not) {
  return row.called_for == nullptr || row.called_for(why_not);
}

// How the processes find each other under the launcher that this module knows. Errors as for
// load_backend(); also kNotFound when the module knows no launcher.
Result<const LauncherBootstrap*> load_launcher_bootstrap(const BackendRow& row);

// The folder that holds libhora, or the program that it is linked into.
std::string library_folder();

}  // namespace hora::collectives
