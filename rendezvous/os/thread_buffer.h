// SPDX-License-Identifier: Apache-2.0
// Room to read into, for each thread and each place in the code: made when a thread first reads
// there. A thread_local array would be cleared whenever a thread starts, and in the first thread
// when the program does, whether anything reads there or not.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace hora::os {

// `Place` tells apart buffers that may be in use at the same time.
template <typename Place, std::size_t kSize>
std::span<char, kSize> thread_buffer() {
  static thread_local const auto memory = std::make_unique_for_overwrite<char[]>(kSize);
  return std::span<char, kSize>(memory.get(), kSize);
}

}  // namespace hora::os
