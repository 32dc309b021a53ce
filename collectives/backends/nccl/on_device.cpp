// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/nccl/on_device.h"

#include "collectives/kernels/elements.h"
#include "collectives/types.h"

namespace hora::collectives::nccl {

// Why an exact factor is enough: the product of two halves has at most twice their digits, which
// float32 holds, so both ways round it once. float32 and float64 are multiplied in themselves
// anyway.

std::optional<Scalar> exact_scalar(hora_dtype dtype, double factor) {
  Scalar scalar;
  if (!is_floating(dtype)) return std::nullopt;
  write_element(scalar.bytes.data(), dtype, 0, factor);
  if (read_element(scalar.bytes.data(), dtype, 0) != factor) return std::nullopt;
  return scalar;
}

}  // namespace hora::collectives::nccl
