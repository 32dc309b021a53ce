// SPDX-License-Identifier: Apache-2.0
// GPU memory for results that the runtime allocates. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hora::collectives::nccl {

// Sets what kOwnDevice means from now on.
void use_device(std::int32_t device) noexcept;
// Sets what it means before any device is used: the ranks of a host take the devices in turn.
void expect_place(std::int32_t local_rank) noexcept;
std::int32_t own_device() noexcept;

// Null: there is no driver, no such device, or no memory left. `content` may be null.
void* allocate(std::int32_t device, std::size_t bytes, const void* content) noexcept;
void release(std::int32_t device, void* memory) noexcept;

}  // namespace hora::collectives::nccl
