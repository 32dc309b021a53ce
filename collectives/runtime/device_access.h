// SPDX-License-Identifier: Apache-2.0
// The memory of GPUs. libhora itself links no GPU library: the backend that does knows it.
#pragma once

#include <cstdint>

#include "collectives/backend.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// What knows the memory of GPUs; null: nothing does.
const BackendDescriptor* device_memory();

// Whether tensors can lie on this device, or why not. Any thread may ask; what was found to work is
// remembered.
Status check_device(std::int32_t device);

}  // namespace hora::collectives
