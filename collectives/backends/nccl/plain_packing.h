// SPDX-License-Identifier: Apache-2.0
// Copies and scales tensors on a GPU without kernels of our own. The result has the bits that the
// kernels give: the ranks of a job may differ in which of the two they use. One thread at a time,
// with the GPU's context current.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/backends/nccl/communicator.h"
#include "collectives/backends/nccl/gpu.h"
#include "collectives/backends/nccl/host_scaling.h"
#include "collectives/backends/nccl/on_device.h"
#include "collectives/backends/nccl/pack_module.h"

namespace hora::collectives::nccl {

class PlainPacking {
 public:
  // The arguments outlive this object. It is made and ends before its GPU.
  PlainPacking(const Cuda& cuda, const Nccl& nccl, const Gpu& gpu, const std::atomic<bool>& aborted,
               std::chrono::milliseconds timeout);

  // As PackModule::copy(), on the stream `lane` of the GPU.
  bool copy(int lane, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
            std::int64_t divisor, ErrorText& error);

 private:
  struct Lane {
    HostScaling host;
    std::unique_ptr<NcclCommunicator> alone;  // of this rank only; null before it is needed
  };

  bool move(CUstream stream, hora_dtype dtype, const std::vector<Copy>& copies, ErrorText& error);
  bool multiply(int lane, hora_dtype dtype, const std::vector<Copy>& copies, const Scalar& factor,
                ErrorText& error);

  const Cuda& cuda_;
  const Nccl& nccl_;
  const Gpu& gpu_;
  const std::atomic<bool>& aborted_;
  std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace hora::collectives::nccl
