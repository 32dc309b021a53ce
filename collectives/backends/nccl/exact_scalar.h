// SPDX-License-Identifier: Apache-2.0
// A factor as an element of a floating-point dtype.  [pure]
#pragma once

#include <array>
#include <optional>

#include "hora/hora.h"

namespace hora::collectives::nccl {

// The bytes of one element, at the front.
struct Scalar {
  alignas(8) std::array<unsigned char, 8> bytes{};
};

// Empty: the dtype is no float, or would round the factor. With an exact factor, a multiplication
// in the dtype itself gives the bits of Hora's own, which multiplies in a wider one.
std::optional<Scalar> exact_scalar(hora_dtype dtype, double factor);

}  // namespace hora::collectives::nccl
