// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory for tensors of a GPU on their way through host memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/backend.h"

namespace hora::collectives::nccl {

// Aligned for vectors. Null: `error` says why.
void* allocate_on_host(std::int32_t device, std::size_t bytes, ErrorText& error) noexcept;
// What allocate_on_host() returned for this device. Nothing on the device may use it any more.
void release_on_host(std::int32_t device, void* memory) noexcept;

}  // namespace hora::collectives::nccl
