// SPDX-License-Identifier: Apache-2.0
// The driver is opened when it is asked for: hora-perf runs on hosts that have none.
#include "apps/perf/gpu.h"

#include <dlfcn.h>

#include <string>

#include "apps/perf/bench.h"
#include "hora/hora.h"

namespace hora::perf {

namespace {

using Pointer = unsigned long long;  // CUdeviceptr

void* driver() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw Failure{"--device gpu: this host has no CUDA driver (" +
                  std::string(why == nullptr ? "libcuda.so.1" : why) + ")"};
  }
  return handle;
}

std::string error_name(int result) {
  const char* name = nullptr;
  const auto get = reinterpret_cast<int (*)(int, const char**)>(dlsym(driver(), "cuGetErrorName"));
  if (get == nullptr || get(result, &name) != 0 || name == nullptr) return std::to_string(result);
  return name;
}

// Calls a function of the driver by its name in the library.
template <typename... Arguments>
void call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(driver(), name));
  if (function == nullptr)
    throw Failure{"--device gpu: the CUDA driver has no " + std::string(name)};
  const int result = function(arguments...);
  if (result != 0) throw Failure{"--device gpu: " + std::string(name) + ": " + error_name(result)};
}

Pointer pointer(const void* memory) { return reinterpret_cast<Pointer>(memory); }

}  // namespace

Gpu::Gpu() {
  call("cuInit", 0u);
  int count = 0;
  call("cuDeviceGetCount", &count);
  if (count == 0)
    throw Failure{"--device gpu: this host has no GPU, or CUDA_VISIBLE_DEVICES hides it"};
  int device = 0;
  void* context = nullptr;
  // As torch and NCCL's own tests do: a GPU for each local rank, shared where there are fewer.
  device_ = hora_local_rank() % count;
  call("cuDeviceGet", &device, device_);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxPushCurrent_v2", context);
  constexpr unsigned kNonBlocking = 1;
  call("cuStreamCreateWithPriority", &stream_, kNonBlocking, 0);
}

Gpu& Gpu::mine() {
  static Gpu gpu;
  return gpu;
}

void* Gpu::allocate(std::size_t bytes) {
  Pointer memory = 0;
  call("cuMemAlloc_v2", &memory, bytes);
  return reinterpret_cast<void*>(memory);
}

void Gpu::free(void* memory) noexcept {
  try {
    call("cuMemFree_v2", pointer(memory));
  } catch (const Failure&) {
    // The process is about to end because of the earlier error.
  }
}

void* Gpu::allocate_on_host(std::size_t bytes) {
  void* memory = nullptr;
  call("cuMemAllocHost_v2", &memory, bytes);
  return memory;
}

void Gpu::free_on_host(void* memory) noexcept {
  try {
    call("cuMemFreeHost", memory);
  } catch (const Failure&) {
    // As above.
  }
}

void Gpu::to_device(void* target, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  // In the stream of the operations, so it follows their work on the memory.
  call("cuMemcpyHtoDAsync_v2", pointer(target), source, bytes, stream_);
  synchronize();
}

void Gpu::to_host(void* target, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  call("cuMemcpyDtoHAsync_v2", target, pointer(source), bytes, stream_);
  synchronize();
}

void Gpu::synchronize() { call("cuStreamSynchronize", stream_); }

}  // namespace hora::perf
