// SPDX-License-Identifier: Apache-2.0
// What the doubles of CUDA and NCCL share. The double of CUDA exports these for that of NCCL.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>

namespace hora::gpu_double {

// Runs `work` on the stream, after its earlier work. The null stream is one, too.
__attribute__((visibility("default"))) void enqueue(CUstream stream, std::function<void()> work);
// Ends the process with a message unless all of it is memory that was allocated on the "device".
__attribute__((visibility("default"))) void expect_device_memory(const void* data,
                                                                 std::size_t bytes,
                                                                 const char* what);

// The ordinal of the device whose context is current in this thread; -1 when none is.
__attribute__((visibility("default"))) int current_device();
// HORA_DOUBLE_DEVICES; 1 unless set.
__attribute__((visibility("default"))) int device_count();

}  // namespace hora::gpu_double
