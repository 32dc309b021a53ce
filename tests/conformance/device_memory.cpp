// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU for the tensors of the tests, by the CUDA driver that the process finds.
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tensors.h"

namespace hora::test {

namespace {

using Pointer = unsigned long long;  // CUdeviceptr

template <typename Function>
Function find(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* const function = driver == nullptr ? nullptr : dlsym(driver, name);
  if (function == nullptr)
    throw std::runtime_error("HORA_TEST_DEVICE: no CUDA driver has " + std::string(name));
  return reinterpret_cast<Function>(function);
}

void expect(int result, const char* call) {
  if (result != 0)
    throw std::runtime_error(std::string(call) + " answers " + std::to_string(result));
}

// The device's primary context, current in this thread from now on.
void use_device() {
  static thread_local bool used = false;
  if (used) return;
  int device = 0;
  void* context = nullptr;
  expect(find<int (*)(unsigned)>("cuInit")(0), "cuInit");
  expect(find<int (*)(int*, int)>("cuDeviceGet")(&device, test_device()), "cuDeviceGet");
  expect(find<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device),
         "cuDevicePrimaryCtxRetain");
  expect(find<int (*)(void*)>("cuCtxPushCurrent_v2")(context), "cuCtxPushCurrent");
  used = true;
}

}  // namespace

int test_device() {
  static const char* const device = std::getenv("HORA_TEST_DEVICE");
  return device == nullptr ? HORA_CPU_DEVICE : std::atoi(device);
}

void* allocate_on_device(std::size_t bytes) {
  use_device();
  Pointer memory = 0;
  constexpr unsigned kGlobal = 1;  // CU_MEM_ATTACH_GLOBAL
  expect(
      find<int (*)(Pointer*, std::size_t, unsigned)>("cuMemAllocManaged")(&memory, bytes, kGlobal),
      "cuMemAllocManaged");
  return reinterpret_cast<void*>(memory);
}

void free_on_device(void* memory) {
  use_device();
  expect(find<int (*)(Pointer)>("cuMemFree_v2")(reinterpret_cast<Pointer>(memory)), "cuMemFree");
}

void copy_from_device(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  use_device();
  expect(find<int (*)(void*, Pointer, std::size_t)>("cuMemcpyDtoH_v2")(
             to, reinterpret_cast<Pointer>(from), bytes),
         "cuMemcpyDtoH");
}

}  // namespace hora::test
