// SPDX-License-Identifier: Apache-2.0
// Each rank chooses by itself. That is safe because both means give the same bits and neither
// changes what is called on the communicators of all ranks.
#include "collectives/backends/nccl/packing.h"

#include <string>

namespace hora::collectives::nccl {

Packing::Packing(const Cuda& cuda, const Nccl& nccl, const Gpu& gpu,
                 const std::atomic<bool>& aborted, std::chrono::milliseconds timeout,
                 Notices* notices)
    : cuda_(cuda), gpu_(gpu), notices_(notices), plain_(cuda, nccl, gpu, aborted, timeout) {}

void Packing::prepare() {
  prepared_ = true;
  std::string why_not;
  kernels_ = PackModule::on(gpu_.device(), cuda_, why_not);
  if (kernels_ != nullptr || notices_ == nullptr) return;
  const std::string sentence =
      "the copying kernels do not load (" + why_not +
      "), so tensors are packed one by one, and scaled by NCCL or, where NCCL would round "
      "differently, in host memory";
  notices_->warn(sentence.c_str());
}

bool Packing::copy(int lane, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
                   std::int64_t divisor, ErrorText& error) {
  if (kernels_ == nullptr) return plain_.copy(lane, dtype, copies, factor, divisor, error);
  return kernels_->copy(gpu_.stream(lane), dtype, copies, factor, divisor, error);
}

}  // namespace hora::collectives::nccl
