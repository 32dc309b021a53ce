// SPDX-License-Identifier: Apache-2.0
// The runtime allocates results before it knows which backend object will fill them, so these are
// plain functions over the primary context. Two atomics remember which device this rank uses.
#include "collectives/backends/nccl/device_memory.h"

#include <atomic>
#include <cstring>

#include "collectives/backend.h"
#include "collectives/backends/nccl/host_copies.h"
#include "collectives/backends/nccl/host_memory.h"
#include "collectives/backends/nccl/on_device.h"

namespace hora::collectives::nccl {

namespace {

constexpr std::int32_t kNone = -1;
// Written by the runtime's thread, read by any thread that allocates.
std::atomic<std::int32_t> last_device{kNone};
std::atomic<std::int32_t> place_on_host{0};

// By way of page-locked memory, as to_device() wants it.
bool fill(std::int32_t device, void* memory, std::size_t bytes, const void* content) noexcept {
  ErrorText why_not;
  void* const locked = allocate_on_host(device, bytes, why_not);
  if (locked == nullptr) return false;
  std::memcpy(locked, content, bytes);
  const HostCopy copy{memory, locked, bytes, nullptr};
  const bool good = to_device(device, &copy, 1, why_not);
  release_on_host(device, locked);
  return good;
}

}  // namespace

void use_device(std::int32_t device) noexcept { last_device = device; }

void expect_place(std::int32_t local_rank) noexcept { place_on_host = local_rank; }

std::int32_t own_device() noexcept {
  if (const std::int32_t used = last_device; used != kNone) return used;
  // Round robin over the devices of the host when no tensor has shown the device yet.
  ErrorText why_not;
  const Cuda* const driver = cuda(why_not);
  int count = 0;
  if (driver == nullptr || driver->cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1) return 0;
  return place_on_host % count;
}

void* allocate(std::int32_t device, std::size_t bytes, const void* content) noexcept {
  ErrorText why_not;
  // The context of the thread's own framework stays current outside of this scope.
  const OnDevice here(device, why_not);
  CUdeviceptr place = 0;
  if (!here.good() || here.driver().cuMemAlloc_v2(&place, bytes) != CUDA_SUCCESS) return nullptr;
  auto* const memory = reinterpret_cast<void*>(place);
  if (content != nullptr && !fill(here.device(), memory, bytes, content)) {
    here.driver().cuMemFree_v2(place);
    return nullptr;
  }
  return memory;
}

void release(std::int32_t device, void* memory) noexcept {
  if (memory == nullptr) return;
  ErrorText why_not;
  const OnDevice here(device, why_not);
  if (here.good()) here.driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory));
}

}  // namespace hora::collectives::nccl
