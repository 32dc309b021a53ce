// SPDX-License-Identifier: Apache-2.0
// The meaning of hora.h's enums: sizes, names, identities.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hora/hora.h"

namespace hora::collectives {

inline constexpr int kDtypeCount = 11;

bool is_dtype(std::int32_t value);
bool is_reduce_op(std::int32_t value);
bool is_operation(std::int32_t value);

std::size_t dtype_bytes(hora_dtype dtype);
bool is_floating(hora_dtype dtype);
std::string_view dtype_name(hora_dtype dtype);
std::string_view operation_name(hora_operation operation);
std::string_view reduce_op_name(hora_reduce_op op);

// "[2, 3]"; "[]" is a scalar.
std::string format_shape(const std::vector<std::int64_t>& shape);
// The number of elements of a shape; -1 when it does not fit 63 bits or an extent is negative.
std::int64_t element_count(const std::vector<std::int64_t>& shape);
// The elements of one row, that is, of all dimensions but the first.
std::int64_t row_elements(const std::vector<std::int64_t>& shape);

// How many of `total` rows each of `size` ranks gets in a reducescatter: the first total % size
// ranks get one more.
std::vector<std::int64_t> even_rows(std::int64_t total, int size);

}  // namespace hora::collectives
