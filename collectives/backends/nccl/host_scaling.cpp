// SPDX-License-Identifier: Apache-2.0
// Nothing here waits: the reduction before it on the stream ends only when the other ranks come,
// and the thread that would wait is the one that notices when they do not. So the stream itself
// copies a part to the host, calls the arithmetic, and copies the part back.
#include "collectives/backends/nccl/host_scaling.h"

#include <algorithm>

#include "collectives/kernels/kernels.h"

namespace hora::collectives::nccl {

namespace {

constexpr std::int64_t kStageBytes = std::int64_t{4} << 20;

}  // namespace

// On a thread of the driver, which must not call CUDA here.
void HostScaling::Part::run(void* part) noexcept {
  auto* const self = static_cast<Part*>(part);
  apply_scale(self->data, self->count, self->dtype, self->factor, self->divisor);
  self->done.store(true, std::memory_order_release);
}

HostScaling::~HostScaling() {
  const auto pending = [](const Part& part) { return !part.done.load(std::memory_order_acquire); };
  // After an abort a part may still be on its way. One that fails to run never will.
  if (std::any_of(parts_.begin(), parts_.end(), pending)) cuda_.cuStreamSynchronize(stream_);
  if (stage_ != nullptr) cuda_.cuMemFreeHost(stage_);
}

bool HostScaling::scale(hora_dtype dtype, const Copy& copy, double factor, std::int64_t divisor,
                        ErrorText& error) {
  while (!parts_.empty() && parts_.front().done.load(std::memory_order_acquire)) {
    parts_.pop_front();
  }
  if (stage_ == nullptr && !check(cuda_, cuda_.cuMemAllocHost_v2(&stage_, kStageBytes),
                                  "cuMemAllocHost (scaling in host memory)", error)) {
    stage_ = nullptr;
    return false;
  }
  const auto width = static_cast<std::int64_t>(dtype_bytes(dtype));
  const std::int64_t most = kStageBytes / width;
  for (std::int64_t first = 0; first < copy.count; first += most) {
    const std::int64_t count = std::min(most, copy.count - first);
    const auto bytes = static_cast<std::size_t>(count * width);
    const auto from = reinterpret_cast<CUdeviceptr>(copy.from);
    const auto to = reinterpret_cast<CUdeviceptr>(copy.to);
    const CUdeviceptr offset = static_cast<std::size_t>(first * width);
    Part& part = parts_.emplace_back();
    part.data = stage_;
    part.count = count;
    part.dtype = dtype;
    part.factor = factor;
    part.divisor = divisor;
    if (!check(cuda_, cuda_.cuMemcpyDtoHAsync_v2(stage_, from + offset, bytes, stream_),
               "cuMemcpyDtoHAsync", error) ||
        !check(cuda_, cuda_.cuLaunchHostFunc(stream_, Part::run, &part), "cuLaunchHostFunc",
               error) ||
        !check(cuda_, cuda_.cuMemcpyHtoDAsync_v2(to + offset, stage_, bytes, stream_),
               "cuMemcpyHtoDAsync", error)) {
      return false;
    }
  }
  return true;
}

}  // namespace hora::collectives::nccl
