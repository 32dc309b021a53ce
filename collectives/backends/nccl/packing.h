// SPDX-License-Identifier: Apache-2.0
// Copies and scales the tensors of steps on a GPU, by the best means that its driver offers. One
// thread at a time, with the GPU's context current.
#pragma once

#include <memory>
#include <vector>

#include "collectives/backends/nccl/plain_packing.h"

namespace hora::collectives::nccl {

class Packing {
 public:
  // The arguments outlive this object; `notices` may be null.
  Packing(const Cuda& cuda, const Nccl& nccl, const Gpu& gpu, const std::atomic<bool>& aborted,
          std::chrono::milliseconds timeout, Notices* notices);

  // Chooses the means, before the first copy. It may take a moment: the driver may have to compile
  // the kernels.
  void prepare();
  bool is_prepared() const { return prepared_; }
  // to = from * factor, or with divisor != 1 (integers only) from / divisor, on stream `lane`.
  bool copy(int lane, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
            std::int64_t divisor, ErrorText& error);

 private:
  const Cuda& cuda_;
  const Gpu& gpu_;
  Notices* notices_;
  const PackModule* kernels_ = nullptr;
  PlainPacking plain_;
  bool prepared_ = false;
};

}  // namespace hora::collectives::nccl
