// SPDX-License-Identifier: Apache-2.0
// What an algorithm does to two operands.
#pragma once

#include <cstdint>

#include "collectives/kernels/kernels.h"

namespace hora::collectives {

struct Reduction {
  Reduction(hora_dtype dtype, hora_reduce_op op)
      : function(reduce_function(dtype, op)),
        element_bytes(static_cast<std::int64_t>(dtype_bytes(dtype))) {}

  ReduceFunction function;
  std::int64_t element_bytes;
};

}  // namespace hora::collectives
