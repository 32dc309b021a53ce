// SPDX-License-Identifier: Apache-2.0
// Part by part through page-locked memory, on a stream of its own: a plain copy would go by the
// default stream, and so wait for all work of the framework, and the copy to the device might not
// be there yet when the call returns.
#include "collectives/backends/nccl/host_copies.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include "collectives/backends/nccl/device_memory.h"
#include "collectives/backends/nccl/on_device.h"

namespace hora::collectives::nccl {

namespace {

// Large enough that the start of a copy costs nothing beside it, and little to keep for each
// device.
constexpr std::size_t kPartBytes = std::size_t{4} << 20;

// Kept until the process ends, as the context is.
struct Way {
  std::mutex mutex;
  CUstream stream = nullptr;
  void* part = nullptr;
};

// The device's context is current. Null: `error` says why.
Way* way_of(const Cuda& cuda, std::int32_t device, ErrorText& error) {
  static std::mutex mutex;
  static auto* const ways = new std::map<std::int32_t, std::unique_ptr<Way>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Way>& known = (*ways)[device];
  if (known != nullptr) return known.get();
  auto fresh = std::make_unique<Way>();
  if (!check(cuda, cuda.cuStreamCreateWithPriority(&fresh->stream, CU_STREAM_NON_BLOCKING, 0),
             "cuStreamCreateWithPriority", error)) {
    return nullptr;
  }
  if (!check(cuda, cuda.cuMemAllocHost_v2(&fresh->part, kPartBytes), "cuMemAllocHost", error)) {
    cuda.cuStreamDestroy_v2(fresh->stream);
    return nullptr;
  }
  known = std::move(fresh);
  return known.get();
}

// Calls begin(), then copy(way, offset, bytes) for one part after the other.
template <typename Begin, typename Copy>
bool in_parts(std::int32_t device, std::size_t bytes, ErrorText& error, const Begin& begin,
              const Copy& copy) noexcept {
  try {
    const Cuda* const driver = cuda(error);
    if (driver == nullptr) return false;
    if (device == kOwnDevice) device = own_device();
    const OnDevice here(*driver, device);
    if (!here.good()) return error.set("GPU %d cannot be used", static_cast<int>(device));
    Way* const way = way_of(*driver, device, error);
    if (way == nullptr || !begin(*driver)) return false;
    const std::lock_guard<std::mutex> lock(way->mutex);
    for (std::size_t done = 0; done < bytes; done += kPartBytes) {
      if (!copy(*driver, *way, done, std::min(kPartBytes, bytes - done))) return false;
    }
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

CUdeviceptr place(const void* memory, std::size_t offset) {
  return reinterpret_cast<CUdeviceptr>(memory) + offset;
}

bool wait(const Cuda& cuda, CUstream stream, ErrorText& error) {
  return check(cuda, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize", error);
}

}  // namespace

bool to_host(std::int32_t device, void* producer, void* to, const void* from, std::size_t bytes,
             ErrorText& error) noexcept {
  return in_parts(
      device, bytes, error,
      [&](const Cuda& cuda) { return wait(cuda, static_cast<CUstream>(producer), error); },
      [&](const Cuda& cuda, const Way& way, std::size_t at, std::size_t count) {
        if (!check(cuda, cuda.cuMemcpyDtoHAsync_v2(way.part, place(from, at), count, way.stream),
                   "cuMemcpyDtoHAsync", error) ||
            !wait(cuda, way.stream, error)) {
          return false;
        }
        std::memcpy(static_cast<char*>(to) + at, way.part, count);
        return true;
      });
}

// Each part is waited for before the next one takes its place, and the last before the caller may
// tell the framework that the tensor is there.
bool to_device(std::int32_t device, void* to, const void* from, std::size_t bytes,
               ErrorText& error) noexcept {
  return in_parts(
      device, bytes, error, [](const Cuda&) { return true; },
      [&](const Cuda& cuda, const Way& way, std::size_t at, std::size_t count) {
        std::memcpy(way.part, static_cast<const char*>(from) + at, count);
        return check(cuda, cuda.cuMemcpyHtoDAsync_v2(place(to, at), way.part, count, way.stream),
                     "cuMemcpyHtoDAsync", error) &&
               wait(cuda, way.stream, error);
      });
}

}  // namespace hora::collectives::nccl
