// SPDX-License-Identifier: Apache-2.0
// Both libraries are found by dlopen(), so this module loads on hosts without a GPU and can say
// what is missing. The function tables come from the lists in the header, by macro.
#include "collectives/backends/nccl/libraries.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "collectives/backends/nccl/gpu.h"

namespace hora::collectives::nccl {

namespace {

// The oldest that drivers of CUDA 11 came with, and that has all calls that are needed.
constexpr int kOldestNccl = 20800;

template <typename Function>
bool find(void* library, const char* name, Function& function, ErrorText& why_not) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr || why_not.set("%s", dlerror());
}

// Up to 2.8 the code of 2.8.4 was 2804, since then 2.9.6 is 20906.
int version_of(int code) { return code < 10000 ? code / 1000 * 10000 + code % 1000 : code; }

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

std::string cuda_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// NCCL brings its CUDA along, and a driver runs programs of its own major version and older ones.
// NCCL itself finds out when the ranks make communicators, which is too late to do without it.
bool fits_driver(const void* function_of_nccl, int version, ErrorText& why_not) {
  const int needed = built_for(function_of_nccl);
  ErrorText no_driver;
  const Cuda* const driver = cuda(no_driver);
  int offered = 0;
  if (driver == nullptr || driver->cuDriverGetVersion(&offered) != CUDA_SUCCESS) return true;
  return needed / 1000 <= offered / 1000 ||
         why_not.set("NCCL %s is for CUDA %s, and the driver for %s", version_text(version).c_str(),
                     cuda_text(needed).c_str(), cuda_text(offered).c_str());
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
  decltype(&::ncclGetVersion) get_version = nullptr;
  int code = 0;
  if (!find(library, "ncclGetVersion", get_version, why_not)) return false;
  if (get_version(&code) != ncclSuccess) return why_not.set("NCCL does not report its version");
  // The version before the functions: what an old one lacks would name itself instead.
  table.version = version_of(code);
  if (table.version < kOldestNccl) {
    return why_not.set("NCCL %s is too old; %s or newer is needed",
                       version_text(table.version).c_str(), version_text(kOldestNccl).c_str());
  }
  if (!fits_driver(reinterpret_cast<const void*>(get_version), table.version, why_not)) {
    return false;
  }
  HORA_NCCL_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
  ErrorText missing;
#define HORA_FIND_NEWER(name) find(library, #name, table.name, missing);
  HORA_NCCL_NEWER_FUNCTIONS(HORA_FIND_NEWER)
#undef HORA_FIND_NEWER
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
    const Nccl* const library = nccl(why_not);
    if (library == nullptr) return;
    std::snprintf(text, sizeof text, "%s", version_text(library->version).c_str());
  });
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
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
  const char* const detail =
      nccl.ncclGetLastError == nullptr ? nullptr : nccl.ncclGetLastError(communicator);
  // ncclRemoteError, since 2.13, means that another rank failed first. Before, that was an error of
  // the system, as a socket that breaks is one.
  const bool reports_remote = nccl.version >= 21300;
  error.own = result != (reports_remote ? ncclRemoteError : ncclSystemError);
  return error.set("%s: %s%s%s", call, nccl.ncclGetErrorString(result),
                   detail == nullptr || *detail == '\0' ? "" : ": ",
                   detail == nullptr ? "" : detail);
}

}  // namespace hora::collectives::nccl
