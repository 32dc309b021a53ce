// SPDX-License-Identifier: Apache-2.0
// Asks the NVIDIA driver's libraries directly, because nvidia-smi is missing in many containers.
#include <dlfcn.h>

#include <cstdlib>

#include "apps/selftest/selftest.h"

namespace hora::selftest {

namespace {

constexpr int kNvmlVersionMismatch = 18;  // NVML_ERROR_LIB_RM_VERSION_MISMATCH

std::string loader_error() {
  const char* const text = ::dlerror();
  return text == nullptr ? "it cannot be loaded" : text;
}

template <typename Function>
Function function_of(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// Returns the file in which the loader found a function.
std::string path_of(void* library, const char* function) {
  Dl_info info{};
  void* const address = ::dlsym(library, function);
  const bool found = address != nullptr && ::dladdr(address, &info) != 0;
  return found && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Reports the newest CUDA that this driver supports, such as "12.2".
void ask_cuda(Json& out) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out["cuda_absent"] = loader_error();
    return;
  }
  const auto version = function_of<int (*)(int*)>(library, "cuDriverGetVersion");
  const auto init = function_of<int (*)(unsigned)>(library, "cuInit");
  const auto name_of = function_of<int (*)(int, const char**)>(library, "cuGetErrorName");
  int number = 0;
  if (version != nullptr && version(&number) == 0) {
    out["cuda"] = std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  }
  // cuInit fails if the kernel module is not loaded or does not fit.
  const int answer = init == nullptr ? 0 : init(0);
  const char* name = nullptr;
  if (answer != 0 && name_of != nullptr) name_of(answer, &name);
  if (answer != 0) {
    out["cuda_error"] = name == nullptr ? "error " + std::to_string(answer) : std::string(name);
  }
}

void ask_nvml(Json& out) {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out["nvml_absent"] = loader_error();
    return;
  }
  const auto init = function_of<int (*)()>(library, "nvmlInit_v2");
  const auto driver = function_of<int (*)(char*, unsigned)>(library, "nvmlSystemGetDriverVersion");
  const auto text_of = function_of<const char* (*)(int)>(library, "nvmlErrorString");
  const auto shutdown = function_of<int (*)()>(library, "nvmlShutdown");
  if (init == nullptr || driver == nullptr) return;
  const int answer = init();
  if (answer != 0) {
    const char* const text = text_of == nullptr ? nullptr : text_of(answer);
    out["nvml_error"] = text == nullptr ? "error " + std::to_string(answer) : std::string(text);
    // The library is newer or older than the loaded kernel module: the host needs a reboot.
    if (answer == kNvmlVersionMismatch) out["nvml_mismatch"] = true;
    return;
  }
  char version[96] = {};
  if (driver(version, sizeof version - 1) == 0) out["driver"] = version;
  if (shutdown != nullptr) shutdown();
}

}  // namespace

Json test_driver(const ReportStage& at) {
  Json out = Json::object();
  at("asking libnvidia-ml.so.1");
  ask_nvml(out);
  at("asking libcuda.so.1");
  ask_cuda(out);
  return out;
}

Json test_nccl_copy(const std::string& path, const ReportStage& at) {
  Json out = Json::object();
  at("loading it");
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out["error"] = loader_error();
    return out;
  }
  // The real path shows whether two names are one copy.
  char* const file = ::realpath(path_of(library, "ncclGetVersion").c_str(), nullptr);
  if (file != nullptr) out["path"] = file;
  std::free(file);
  at("asking for its version");
  const auto version = function_of<int (*)(int*)>(library, "ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) {
    out["error"] = "it does not say its version";
    return out;
  }
  // Up to 2.9, a minor version counts 1000; newer versions use 10000.
  const int scale = number < 10'000 ? 1000 : 10'000;
  out["version"] = std::to_string(number / scale) + "." + std::to_string(number % scale / 100) +
                   "." + std::to_string(number % 100);
  return out;
}

}  // namespace hora::selftest
