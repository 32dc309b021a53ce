// SPDX-License-Identifier: Apache-2.0
// Reads and writes single elements of any dtype as doubles, for programs that make and check
// tensors.  [pure]
#pragma once

#include <cstdint>

#include "hora/hora.h"

namespace hora::collectives {

// `data` need not be aligned.
double read_element(const void* data, hora_dtype dtype, std::int64_t index);
// Stores the value as the dtype can hold it: fractions of integers are cut off, half precisions
// round to nearest even, every bool but 0 is 1.
void write_element(void* data, hora_dtype dtype, std::int64_t index, double value);

}  // namespace hora::collectives
