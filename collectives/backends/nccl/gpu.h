// One GPU as a backend uses it: streams of its own, events, a buffer to fuse in, the copying
// kernels. One thread at a time. The device's primary context is used, as CUDA's runtime does:
// streams and memory of the process's framework can be named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/backends/nccl/libraries.h"

namespace hora::collectives::nccl {

struct Copy {
  const void* from;
  void* to;
  std::int64_t count;  // elements
};

class Gpu {
 public:
  static std::unique_ptr<Gpu> open(const Cuda& cuda, int device, int streams, ErrorText& error);
  // Everything that was given to the streams must have ended.
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // The calling thread works on this device while it lives.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Cuda& cuda_;
  };

  int device() const { return device_; }
  CUstream stream(int which) const { return lanes_[static_cast<std::size_t>(which)].stream; }

  // The functions below need a Current.
  // What comes next on our stream starts when all is done that `producer` was given up to now.
  bool wait_for(int which, CUstream producer, ErrorText& error);
  // Memory for one step on this stream; the next call may give the same. Null: none left.
  void* buffer(int which, std::size_t bytes, ErrorText& error);
  bool copy(int which, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
            std::int64_t divisor, ErrorText& error);
  // An event behind all that the stream was given; to be given back by recycle().
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
  CUmodule module_ = nullptr;
  std::vector<CUfunction> kernels_;  // by dtype
  std::vector<Lane> lanes_;
  std::vector<CUevent> free_events_;
};

}  // namespace hora::collectives::nccl
