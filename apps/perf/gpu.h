// SPDX-License-Identifier: Apache-2.0
// Memory of this rank's GPU, by the CUDA driver that the host has. An error is a Failure.
#pragma once

#include <cstddef>

namespace hora::perf {

class Gpu {
 public:
  // The GPU whose number is the local rank, in the order of CUDA_VISIBLE_DEVICES; where there are
  // fewer GPUs than ranks, it begins again. One object for the process.
  static Gpu& mine();

  int device() const { return device_; }
  void* stream() const { return stream_; }

  void* allocate(std::size_t bytes);
  void free(void* memory) noexcept;
  // Page-locked memory of the host, which copies need to be quick.
  void* allocate_on_host(std::size_t bytes);
  void free_on_host(void* memory) noexcept;
  // Both return when it is done.
  void to_device(void* target, const void* source, std::size_t bytes);
  void to_host(void* target, const void* source, std::size_t bytes);
  // Returns when everything is done that was ordered on the stream.
  void synchronize();

 private:
  Gpu();
  int device_ = 0;
  void* stream_ = nullptr;
};

}  // namespace hora::perf
