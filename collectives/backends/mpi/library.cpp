// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/mpi/library.h"

#include <dlfcn.h>

#include <mutex>

namespace hora::collectives::mpi {

namespace {

// Their interfaces to programs (ABI) have these names, whatever the version.
#ifdef OPEN_MPI
constexpr const char* kKind = "Open MPI";
constexpr const char* kFiles[] = {"libmpi.so.40"};
#else
constexpr const char* kKind = "MPICH";
constexpr const char* kFiles[] = {"libmpi.so.12", "libmpich.so.12"};
#endif

// Constant-initialised, and without a destructor: MPI is used until the process ends.
constinit Library opened{};

template <typename Symbol>
bool find(void* handle, const char* name, Symbol& symbol, ErrorText& why_not) {
  symbol = reinterpret_cast<Symbol>(::dlsym(handle, name));
  return symbol != nullptr || why_not.set("%s cannot be used: %s", kKind, ::dlerror());
}

bool open_once(ErrorText& why_not) {
  void* handle = nullptr;
  for (const char* const file : kFiles) {
    // RTLD_LOCAL: a program may use an MPI of another kind.
    if (handle == nullptr) handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) return why_not.set("%s cannot be loaded: %s", kKind, ::dlerror());
#define HORA_FIND(name) \
  if (!find(handle, #name, opened.name, why_not)) return false;
  HORA_MPI_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
#ifdef OPEN_MPI
#define HORA_FIND(type, name, constant, object) \
  if (!find(handle, #object, opened.name, why_not)) return false;
#else
#define HORA_FIND(type, name, constant, object) opened.name = constant;
#endif
  HORA_MPI_CONSTANTS(HORA_FIND)
#undef HORA_FIND
  return true;
}

}  // namespace

bool open_library(ErrorText& why_not) {
  static std::once_flag once;
  static bool good = false;
  static ErrorText reason;
  std::call_once(once, [] { good = open_once(reason); });
  if (!good) why_not = reason;
  return good;
}

const Library& site = opened;

}  // namespace hora::collectives::mpi
