// SPDX-License-Identifier: Apache-2.0
// Operations on device memory, and their scalars.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "collectives/backends/nccl/gpu.h"
#include "collectives/backends/nccl/libraries.h"
#include "hora/hora.h"

namespace hora::collectives::nccl {

// A factor as an element of a floating-point dtype.

// The bytes of one element, at the front.
struct Scalar {
  alignas(8) std::array<unsigned char, 8> bytes{};
};

// Empty: the dtype is not a float, or would round the factor. With an exact factor, a
// multiplication in the dtype itself gives the bits of Hora's own, which multiplies in a wider one.
std::optional<Scalar> exact_scalar(hora_dtype dtype, double factor);

// Makes a device's primary context current in this thread while it lives. The context stays
// retained, because the process's framework and the backend use it, too.

class OnDevice {
 public:
  // Not good(): `error` says why.
  OnDevice(std::int32_t device, ErrorText& error)
      : cuda_(cuda(error)), device_(device == kOwnDevice ? own_device() : device) {
    if (cuda_ == nullptr) return;
    CUdevice handle = 0;
    CUcontext context = nullptr;
    good_ = cuda_->cuDeviceGet(&handle, device_) == CUDA_SUCCESS &&
            cuda_->cuDevicePrimaryCtxRetain(&context, handle) == CUDA_SUCCESS &&
            cuda_->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    if (!good_) error.set("GPU %d cannot be used", static_cast<int>(device_));
  }
  ~OnDevice() {
    CUcontext before = nullptr;
    if (good_) cuda_->cuCtxPopCurrent_v2(&before);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  bool good() const { return good_; }
  // The functions below need good(). The device is never kOwnDevice.
  const Cuda& driver() const { return *cuda_; }
  std::int32_t device() const { return device_; }

 private:
  const Cuda* cuda_;
  std::int32_t device_;
  bool good_ = false;
};

}  // namespace hora::collectives::nccl
