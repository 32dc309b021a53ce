// SPDX-License-Identifier: Apache-2.0
// Scales tensors of a GPU in host memory, in the order of a stream. Slow, since every byte crosses
// the bus twice, but exact for every dtype. One thread at a time, with the GPU's context current.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "collectives/backends/nccl/pack_module.h"

namespace hora::collectives::nccl {

class HostScaling {
 public:
  HostScaling(const Cuda& cuda, CUstream stream) : cuda_(cuda), stream_(stream) {}
  // Waits for what it has put on the stream; that must be able to end.
  ~HostScaling();
  HostScaling(const HostScaling&) = delete;
  HostScaling& operator=(const HostScaling&) = delete;

  // Puts the work on the stream and returns: to = from * factor / divisor, as apply_scale() does.
  bool scale(hora_dtype dtype, const Copy& copy, double factor, std::int64_t divisor,
             ErrorText& error);

 private:
  // The stream calls this when a part has arrived.
  struct Part {
    void* data;
    std::int64_t count;
    hora_dtype dtype;
    double factor;
    std::int64_t divisor;
    std::atomic<bool> done{false};
    static void run(void* part) noexcept;
  };

  const Cuda& cuda_;
  CUstream stream_;
  void* stage_ = nullptr;   // page-locked; the stream's order keeps the parts apart
  std::deque<Part> parts_;  // their addresses stay the same; in the order of the stream
};

}  // namespace hora::collectives::nccl
