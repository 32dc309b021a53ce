// SPDX-License-Identifier: Apache-2.0
// The copying kernels as the driver loads them, inside the module.
#pragma once

#include <span>
#include <string>

namespace hora::collectives::nccl {

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

}  // namespace hora::collectives::nccl
