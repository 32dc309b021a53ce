// SPDX-License-Identifier: Apache-2.0
// The CUDA that an NCCL was built for: no call of it reports that, but its banner does, "NCCL
// version 2.28.9+cuda13.0", which is among its constants. The launcher reads it in a file, a rank
// in memory. [pure]
#pragma once

#include <cstddef>
#include <string_view>

namespace hora {

// The constants come early in the library; the code for GPUs, nearly all of it, comes later.
inline constexpr std::size_t kNcclBannerWithin = std::size_t{16} << 20;

// 13000 is CUDA 13.0; 0: there is no banner.
int cuda_of_nccl(std::string_view memory);

}  // namespace hora
