// SPDX-License-Identifier: Apache-2.0
// On a stream of its own: a plain copy would go by the default stream, and so wait for all work of
// the framework, and the copy to the device might not be there yet when the call returns. The host
// memory is page-locked, so the device copies by itself, one tensor after the other.
#include "collectives/backends/nccl/host_copies.h"

#include <exception>
#include <map>
#include <mutex>

#include "collectives/backends/nccl/on_device.h"

namespace hora::collectives::nccl {

namespace {

// Kept until the process ends, as the context is. The device's context is current. Null: `error`
// says why.
CUstream stream_of(const Cuda& cuda, std::int32_t device, ErrorText& error) {
  static std::mutex mutex;
  static auto* const streams = new std::map<std::int32_t, CUstream>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = streams->find(device);
  if (known != streams->end()) return known->second;
  CUstream fresh = nullptr;
  if (!check(cuda, cuda.cuStreamCreateWithPriority(&fresh, CU_STREAM_NON_BLOCKING, 0),
             "cuStreamCreateWithPriority", error)) {
    return nullptr;
  }
  return (*streams)[device] = fresh;
}

bool wait(const Cuda& cuda, CUstream stream, ErrorText& error) {
  return check(cuda, cuda.cuStreamSynchronize(stream), "cuStreamSynchronize", error);
}

// The streams on which the copies depend. Most often all tensors of a step have the same.
bool wait_for_producers(const Cuda& cuda, const HostCopy* copies, std::int64_t count,
                        ErrorText& error) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0 && copies[i].producer == copies[i - 1].producer) continue;
    if (!wait(cuda, static_cast<CUstream>(copies[i].producer), error)) return false;
  }
  return true;
}

// Starts all copies by `copy`, then waits for them.
template <typename Before, typename Copy>
bool copy_all(std::int32_t device, const HostCopy* copies, std::int64_t count, ErrorText& error,
              const Before& before, const Copy& copy) noexcept {
  try {
    const OnDevice here(device, error);
    if (!here.good()) return false;
    const Cuda& driver = here.driver();
    CUstream const stream = stream_of(driver, here.device(), error);
    if (stream == nullptr || !before(driver)) return false;
    bool good = true;
    for (std::int64_t i = 0; good && i < count; ++i) {
      if (copies[i].bytes > 0) good = copy(driver, copies[i], stream);
    }
    if (good) return wait(driver, stream, error);
    // The caller may release the memory of the copies that have begun.
    driver.cuStreamSynchronize(stream);
    return false;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

CUdeviceptr place(const HostCopy& copy) { return reinterpret_cast<CUdeviceptr>(copy.on_device); }

// The driver gives a copy of up to 24 KiB to the device to the engine that runs kernels. Of the
// processes that share a GPU one at a time has that engine, and a turn takes about 275 us (NVIDIA
// H200, driver 580). A copy of two rows uses a copying engine and takes 9 us, whatever its size.
constexpr std::size_t kLeastByCopyingEngine = 32 * 1024;

CUresult start_copy(const Cuda& cuda, const HostCopy& copy, CUstream stream) {
  if (copy.bytes >= kLeastByCopyingEngine || copy.bytes % 2 != 0) {
    return cuda.cuMemcpyHtoDAsync_v2(place(copy), copy.on_host, copy.bytes, stream);
  }
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = copy.on_host;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = place(copy);
  rows.WidthInBytes = copy.bytes / 2;
  rows.Height = 2;
  rows.srcPitch = rows.WidthInBytes;
  rows.dstPitch = rows.WidthInBytes;
  return cuda.cuMemcpy2DAsync_v2(&rows, stream);
}

}  // namespace

bool to_host(std::int32_t device, const HostCopy* copies, std::int64_t count,
             ErrorText& error) noexcept {
  return copy_all(
      device, copies, count, error,
      [&](const Cuda& cuda) { return wait_for_producers(cuda, copies, count, error); },
      [&](const Cuda& cuda, const HostCopy& copy, CUstream stream) {
        return check(cuda, cuda.cuMemcpyDtoHAsync_v2(copy.on_host, place(copy), copy.bytes, stream),
                     "cuMemcpyDtoHAsync", error);
      });
}

bool to_device(std::int32_t device, const HostCopy* copies, std::int64_t count,
               ErrorText& error) noexcept {
  return copy_all(
      device, copies, count, error, [](const Cuda&) { return true; },
      [&](const Cuda& cuda, const HostCopy& copy, CUstream stream) {
        return check(cuda, start_copy(cuda, copy, stream), "a copy to the GPU", error);
      });
}

}  // namespace hora::collectives::nccl
