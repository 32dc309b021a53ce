// SPDX-License-Identifier: Apache-2.0
// To lock pages takes about as long as to copy them, so one block for each device is kept from
// operation to operation. A larger one replaces it when it is needed.
#include "collectives/backends/nccl/host_memory.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/backends/nccl/on_device.h"

namespace hora::collectives::nccl {

namespace {

// A fused step has at most 128 MiB unless the user sets another limit. A larger block is freed when
// its operation ends: locked memory cannot be used for anything else.
constexpr std::size_t kMostKept = std::size_t{128} << 20;
constexpr std::size_t kLeast = std::size_t{64} << 10;

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
  bool in_use = false;
};

// The blocks of one device. Those in use are one for each operation under way.
class Blocks {
 public:
  void* take(const Cuda& cuda, std::size_t bytes, ErrorText& error) {
    for (Block& block : blocks_) {
      if (block.in_use || block.bytes < bytes) continue;
      block.in_use = true;
      return block.memory;
    }
    // Too small for this one, they are likely to be too small for the next one as well.
    free_unused(cuda);
    Block fresh;
    fresh.bytes = rounded(bytes);
    fresh.in_use = true;
    blocks_.reserve(blocks_.size() + 1);
    if (!check(cuda, cuda.cuMemAllocHost_v2(&fresh.memory, fresh.bytes), "cuMemAllocHost", error)) {
      return nullptr;
    }
    blocks_.push_back(fresh);
    return fresh.memory;
  }

  void give_back(const Cuda& cuda, void* memory) {
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), [memory](const Block& block) {
      return block.memory == memory;
    });
    if (found == blocks_.end()) return;
    found->in_use = false;
    const bool another = std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return &block != &*found && !block.in_use && block.bytes >= found->bytes;
    });
    if (!another && found->bytes <= kMostKept) return;
    cuda.cuMemFreeHost(memory);
    blocks_.erase(found);
  }

 private:
  static std::size_t rounded(std::size_t bytes) {
    return bytes > kMostKept ? bytes : std::bit_ceil(std::max(bytes, kLeast));
  }

  void free_unused(const Cuda& cuda) {
    const auto unused = std::partition(blocks_.begin(), blocks_.end(),
                                       [](const Block& block) { return block.in_use; });
    for (auto block = unused; block != blocks_.end(); ++block) cuda.cuMemFreeHost(block->memory);
    blocks_.erase(unused, blocks_.end());
  }

  std::vector<Block> blocks_;
};

std::mutex mutex;

// Kept until the process ends, as the contexts are.
Blocks& blocks_of(std::int32_t device) {
  static auto* const all = new std::map<std::int32_t, Blocks>;
  return (*all)[device];
}

}  // namespace

void* allocate_on_host(std::int32_t device, std::size_t bytes, ErrorText& error) noexcept {
  try {
    const OnDevice here(device, error);
    if (!here.good()) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex);
    return blocks_of(here.device()).take(here.driver(), bytes, error);
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

void release_on_host(std::int32_t device, void* memory) noexcept {
  if (memory == nullptr) return;
  ErrorText why_not;
  const OnDevice here(device, why_not);
  if (!here.good()) return;  // the driver has ended, and has freed everything
  const std::lock_guard<std::mutex> lock(mutex);
  blocks_of(here.device()).give_back(here.driver(), memory);
}

}  // namespace hora::collectives::nccl
