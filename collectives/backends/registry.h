// Every backend that this version of Hora knows, built or not, and how to get its descriptor.
#pragma once

#include <span>
#include <string>

#include "collectives/backends/backend.h"
#include "collectives/backends/launcher_bootstrap.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

struct BackendRow {
  const char* id;
  const BackendDescriptor* (*linked)();  // null: not linked in
  const char* module;                    // file name of the loadable module; null: none
  const char* why_not_built;             // null: built
  // Whether this process may have a use for it; told without loading anything. Null: it may.
  bool (*called_for)(ErrorText& why_not) noexcept;
};

// Generated from the hora_add_backend() lines of backends/CMakeLists.txt.
std::span<const BackendRow> backend_rows();
const BackendRow* find_backend_row(std::string_view id);

// Linked: at once. A module: loads it on the first call, from the folder of libhora (or
// HORA_MODULE_PATH); the answer is kept. kNotFound when it was not built or its file is not there,
// kUnavailable when something that it needs is missing; the text says what. Any thread.
Result<const BackendDescriptor*> load_backend(const BackendRow& row);

// Whether this process may have a use for the backend. False: `why_not` says so. What a module
// brings along may crash, so one without a use is left alone.
inline bool is_called_for(const BackendRow& row, ErrorText& why_not) {
  return row.called_for == nullptr || row.called_for(why_not);
}

// How the processes of the launcher that this module knows meet. Errors as load_backend();
// kNotFound also when the module knows none.
Result<const LauncherBootstrap*> load_launcher_bootstrap(const BackendRow& row);

// The folder that holds libhora, or the program that it is linked into.
std::string library_folder();

}  // namespace hora::collectives
