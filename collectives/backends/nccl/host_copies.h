// SPDX-License-Identifier: Apache-2.0
// Copies between a GPU and host memory, for operations that go through host memory. They need the
// driver alone, not NCCL. Any thread; each call blocks until all of its copies are there.
#pragma once

#include <cstdint>

#include "collectives/backend.h"

namespace hora::collectives::nccl {

// The contents of device memory once the producers, its streams, have done their work so far.
bool to_host(std::int32_t device, const HostCopy* copies, std::int64_t count,
             ErrorText& error) noexcept;
bool to_device(std::int32_t device, const HostCopy* copies, std::int64_t count,
               ErrorText& error) noexcept;

}  // namespace hora::collectives::nccl
