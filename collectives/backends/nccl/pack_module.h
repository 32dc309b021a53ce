// SPDX-License-Identifier: Apache-2.0
// The kernels that pack tensors on the device: their images, and the loaded module.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/backends/nccl/libraries.h"
#include "collectives/types.h"

namespace hora::collectives::nccl {

// The copying kernels as the driver loads them, inside the module.

struct PackImage {
  const char* name;   // for people
  const void* data;   // for cuModuleLoadData
  int oldest_driver;  // NVIDIA promises that drivers of this CUDA version and later read it: 11000
};

// In the order in which to try them.
std::span<const PackImage> pack_images();

// Why a driver for CUDA `driver_version` is not asked to read the image; empty: it is asked. An
// older driver might accept what it does not understand.
std::string why_not_asked(const PackImage& image, int driver_version);

// The kernels of pack_kernels.cu on one GPU.

// From and to may be the same memory.
struct Copy {
  const void* from;
  void* to;
  std::int64_t count;  // elements
};

// The functions need the device's primary context to be current.
class PackModule {
 public:
  // The module of this process on the current device `device`. The first call loads the first image
  // that the driver takes; a driver that has to compile it needs a moment, and nothing can end that
  // wait. Null: `why_not` says why each image was refused. Any thread.
  static const PackModule* on(int device, const Cuda& cuda, std::string& why_not);
  ~PackModule();
  PackModule(const PackModule&) = delete;
  PackModule& operator=(const PackModule&) = delete;

  // to = from * factor, or with divisor != 1 (integers only) from / divisor.
  bool copy(CUstream stream, hora_dtype dtype, const std::vector<Copy>& copies, double factor,
            std::int64_t divisor, ErrorText& error) const;

 private:
  explicit PackModule(const Cuda& cuda) : cuda_(cuda) {}
  static std::unique_ptr<const PackModule> load(const Cuda& cuda, std::string& why_not);
  bool take(const void* image, ErrorText& error);

  const Cuda& cuda_;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kDtypeCount> kernels_{};
};

}  // namespace hora::collectives::nccl
