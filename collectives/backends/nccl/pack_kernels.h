// SPDX-License-Identifier: Apache-2.0
// The interface between the host and the kernels of pack_kernels.cu.
#pragma once

#include <cstdint>

namespace hora::collectives::nccl {

// The copies of one launch. They travel by value, so that the host keeps no memory for them; a
// kernel's parameters may take 4 KiB.
inline constexpr int kMostCopies = 128;
struct CopyTable {
  const void* from[kMostCopies];
  void* to[kMostCopies];
  std::int64_t count[kMostCopies];  // elements
};

// to[i] = from[i] * factor; with divisor != 1 (integers only) from[i] / divisor instead. Block row
// y does copy y. kernel name: this and the dtype's suffix (kernel_suffix).
inline constexpr const char* kCopyKernel = "hora_copy_";
inline constexpr int kThreadsPerBlock = 256;

}  // namespace hora::collectives::nccl
