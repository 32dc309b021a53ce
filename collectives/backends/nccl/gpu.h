// SPDX-License-Identifier: Apache-2.0
// GPUs and their memory, through the CUDA or HIP runtime that is opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/backends/nccl/libraries.h"

namespace hora::collectives::nccl {

// Which CUDA the NCCL of this process was built for.

// From the library that has the function: 13000 is CUDA 13.0. 0: unknown.
int built_for(const void* function);

// One GPU as a backend uses it: its own streams, events, and a fusion buffer per stream. One thread
// at a time. It works in the device's primary context, as CUDA's runtime does, so streams and
// memory of the process's framework are valid here.

class Gpu {
 public:
  static std::unique_ptr<Gpu> open(const Cuda& cuda, int device, int streams, ErrorText& error);
  // All work on the streams must have ended.
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Makes this device current for the calling thread while it lives.
  class Current {
   public:
    explicit Current(const Gpu& gpu) : Current(gpu.cuda_, gpu.context_) {}
    Current(const Cuda& cuda, CUcontext context);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Cuda& cuda_;
  };

  int device() const { return device_; }
  const Cuda& cuda() const { return cuda_; }
  CUcontext context() const { return context_; }  // lives as long as the process
  int streams() const { return static_cast<int>(lanes_.size()); }
  CUstream stream(int which) const { return lanes_[static_cast<std::size_t>(which)].stream; }

  // The functions below need a Current.
  //
  // wait_for: later work on stream `which` starts only when `producer` has finished its work so
  // far.
  bool wait_for(int which, CUstream producer, ErrorText& error);
  // Memory for one step on this stream, owned by the Gpu; the next call may return the same. Null:
  // no memory left.
  void* buffer(int which, std::size_t bytes, ErrorText& error);
  // An event after all work that the stream has so far; the caller returns it by recycle().
  CUevent mark(int which, ErrorText& error);
  Progress look_at(CUevent event, ErrorText& error);
  void recycle(CUevent event) { free_events_.push_back(event); }

 private:
  struct Lane {
    CUstream stream = nullptr;
    CUdeviceptr buffer = 0;
    std::size_t capacity = 0;
  };

  Gpu(const Cuda& cuda, int device) : cuda_(cuda), device_(device) {}
  bool prepare(int streams, ErrorText& error);
  CUevent take_event(ErrorText& error);

  const Cuda& cuda_;
  int device_;
  CUcontext context_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<CUevent> free_events_;
};

// GPU memory for results that the runtime allocates. Any thread.

// Sets what kOwnDevice means from now on.
void use_device(std::int32_t device) noexcept;
// Sets what it means before any device is used: the ranks of a host take the devices in turn.
void expect_place(std::int32_t local_rank) noexcept;
std::int32_t own_device() noexcept;

// Null: there is no driver, no such device, or no memory left. `content` may be null.
void* allocate(std::int32_t device, std::size_t bytes, const void* content) noexcept;
void release(std::int32_t device, void* memory) noexcept;

// Whether ranks have to share a GPU, which NCCL refuses, before a rank has chosen one.

// Ranks of one host, by index in their set, that may all use these GPUs only, and outnumber them.
// Both arguments are by index: the host's number, and the PCI bus ids of the GPUs that the rank may
// use (none: not known, so it is not counted). Empty: no rank has to share.
std::vector<int> ranks_that_share(std::span<const std::int32_t> hosts,
                                  std::span<const std::vector<std::string>> gpus);

}  // namespace hora::collectives::nccl
