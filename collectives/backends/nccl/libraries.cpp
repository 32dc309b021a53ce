// SPDX-License-Identifier: Apache-2.0
// Both libraries are found by dlopen(), so this module loads on hosts without a GPU and can say
// what is missing. The function tables come from the lists in the header, by macro.
#include "collectives/backends/nccl/libraries.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace hora::collectives::nccl {

namespace {

// The oldest NCCL whose communicators can be created and aborted without blocking.
constexpr int kOldestNccl = 21400;

template <typename Function>
bool find(void* library, const char* name, Function& function, ErrorText& why_not) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr || why_not.set("%s", dlerror());
}

// The function table of one library, filled on first use. A failure is remembered, too.
template <typename Table>
struct Loaded {
  std::once_flag once;
  bool good = false;
  Table table;
  ErrorText why_not;
};

bool load_cuda(Cuda& table, ErrorText& why_not) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  // Without this text the user would only read about a missing file.
  if (library == nullptr) {
    return why_not.set("no NVIDIA driver: %s", dlerror());
  }
#define HORA_FIND(name) \
  if (!find(library, #name, table.name, why_not)) return false;
  HORA_CUDA_FUNCTIONS(HORA_FIND)
  int count = 0;
  return check(table, table.cuInit(0), "cuInit", why_not) &&
         check(table, table.cuDeviceGetCount(&count), "cuDeviceGetCount", why_not) &&
         (count > 0 || why_not.set("the NVIDIA driver sees no GPU"));
}

bool load_nccl(Nccl& table, ErrorText& why_not) {
  // RTLD_NOLOAD first: the framework's NCCL may lie where the loader would not look, and a process
  // should have one only. Then the file that the environment names: horarun does so where it has
  // sent one. No folder of it is in LD_LIBRARY_PATH, where a framework could find it before its
  // own.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  const char* const named = std::getenv("HORA_NCCL_LIBRARY");
  if (library == nullptr && named != nullptr && *named != '\0') {
    library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return why_not.set("HORA_NCCL_LIBRARY: %s", dlerror());
  }
  if (library == nullptr) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return why_not.set("%s", dlerror());
  HORA_NCCL_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
  int version = 0;
  if (table.ncclGetVersion(&version) != ncclSuccess || version < kOldestNccl) {
    return why_not.set("NCCL %d is too old; 2.14 or newer is needed", version);
  }
  return true;
}

template <typename Table>
const Table* once(Loaded<Table>& loaded, bool (*load)(Table&, ErrorText&), ErrorText& why_not) {
  // A thread that comes during the load waits for its result.
  std::call_once(loaded.once, [&] { loaded.good = load(loaded.table, loaded.why_not); });
  if (loaded.good) return &loaded.table;
  why_not = loaded.why_not;
  return nullptr;
}

}  // namespace

const Cuda* cuda(ErrorText& why_not) {
  static Loaded<Cuda> loaded;
  return once(loaded, load_cuda, why_not);
}

const Nccl* nccl(ErrorText& why_not) {
  static Loaded<Nccl> loaded;
  return once(loaded, load_nccl, why_not);
}

// Static memory, since the border allows no std::string.
const char* nccl_version() {
  static char text[32];
  static std::once_flag once;
  std::call_once(once, [] {
    ErrorText why_not;
    int version = 0;
    const Nccl* const library = nccl(why_not);
    if (library == nullptr || library->ncclGetVersion(&version) != ncclSuccess) return;
    std::snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version / 100 % 100,
                  version % 100);
  });
  return text;
}

bool check(const Cuda& cuda, CUresult result, const char* call, ErrorText& error) {
  if (result == CUDA_SUCCESS) return true;
  const char* name = nullptr;
  const char* text = nullptr;
  // They leave the pointers null for an unknown code.
  cuda.cuGetErrorName(result, &name);
  cuda.cuGetErrorString(result, &text);
  // A failure of the driver is local: no other rank can cause it.
  error.own = true;
  return error.set("%s: %s (%s)", call, text == nullptr ? "unknown error" : text,
                   name == nullptr ? "?" : name);
}

// ncclInProgress is a success of a non-blocking communicator.
bool check(const Nccl& nccl, ncclResult_t result, const char* call, ncclComm_t communicator,
           ErrorText& error) {
  if (result == ncclSuccess || result == ncclInProgress) return true;
  const char* const detail = nccl.ncclGetLastError(communicator);
  // ncclRemoteError means that another rank failed first.
  error.own = result != ncclRemoteError;
  return error.set("%s: %s%s%s", call, nccl.ncclGetErrorString(result),
                   detail == nullptr || *detail == '\0' ? "" : ": ",
                   detail == nullptr ? "" : detail);
}

}  // namespace hora::collectives::nccl
