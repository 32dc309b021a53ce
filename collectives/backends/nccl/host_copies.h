// SPDX-License-Identifier: Apache-2.0
// Copies between a GPU and host memory, for operations that go through host memory. They need the
// driver alone, not NCCL. Any thread; each call blocks until the copy is there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/backend.h"

namespace hora::collectives::nccl {

// What lies on the device once `producer`, a stream of its, has done its work so far.
bool to_host(std::int32_t device, void* producer, void* to, const void* from, std::size_t bytes,
             ErrorText& error) noexcept;
bool to_device(std::int32_t device, void* to, const void* from, std::size_t bytes,
               ErrorText& error) noexcept;

}  // namespace hora::collectives::nccl
