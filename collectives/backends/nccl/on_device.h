// SPDX-License-Identifier: Apache-2.0
// Makes a device's primary context current in this thread while it lives. The context stays
// retained, because the process's framework and the backend use it, too.
#pragma once

#include <cstdint>

#include "collectives/backends/nccl/libraries.h"

namespace hora::collectives::nccl {

class OnDevice {
 public:
  OnDevice(const Cuda& cuda, std::int32_t device) : cuda_(cuda) {
    CUdevice handle = 0;
    CUcontext context = nullptr;
    good_ = cuda_.cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
            cuda_.cuDevicePrimaryCtxRetain(&context, handle) == CUDA_SUCCESS &&
            cuda_.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
  }
  ~OnDevice() {
    CUcontext before = nullptr;
    if (good_) cuda_.cuCtxPopCurrent_v2(&before);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  bool good() const { return good_; }

 private:
  const Cuda& cuda_;
  bool good_ = false;
};

}  // namespace hora::collectives::nccl
