// Memory of a GPU for results that the runtime allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hora::collectives::nccl {

// What kOwnDevice means from now on.
void use_device(std::int32_t device) noexcept;
// What it means before any is used: each rank of the host has one in turn.
void expect_place(std::int32_t local_rank) noexcept;
std::int32_t own_device() noexcept;

// Null: no driver, no such device, or no memory left. `content` may be null.
void* allocate(std::int32_t device, std::size_t bytes, const void* content) noexcept;
void release(std::int32_t device, void* memory) noexcept;

}  // namespace hora::collectives::nccl
