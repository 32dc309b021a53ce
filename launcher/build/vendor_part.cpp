// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/vendor_part.h"

#include <numeric>

namespace hora::launcher {

std::uint64_t unpacked_bytes(const VendorPart& part) {
  return std::accumulate(
      part.files.begin(), part.files.end(), std::uint64_t{0},
      [](std::uint64_t sum, const PartFile& each) { return sum + each.file.size_bytes; });
}

}  // namespace hora::launcher
