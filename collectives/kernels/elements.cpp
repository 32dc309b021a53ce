// SPDX-License-Identifier: Apache-2.0
// One element at a time, for tests and examples: the speed of these functions does not matter. The
// conversions are those of the kernels, so that a test compares like with like.
#include "collectives/kernels/elements.h"

#include <cstring>

#include "collectives/kernels/half.h"
#include "collectives/types.h"

namespace hora::collectives {

namespace {

// The caller's data need not be aligned, hence memcpy.
template <typename T>
T read_as(const unsigned char* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

template <typename T>
void write_as(unsigned char* place, T value) {
  std::memcpy(place, &value, sizeof value);
}

}  // namespace

double read_element(const void* data, hora_dtype dtype, std::int64_t index) {
  const auto* place = static_cast<const unsigned char*>(data) +
                      static_cast<std::size_t>(index) * dtype_bytes(dtype);
  // No default: the compiler then reports a dtype that is missing here.
  switch (dtype) {
    case HORA_UINT8:
    case HORA_BOOL:
      return read_as<std::uint8_t>(place);
    case HORA_INT8:
      return read_as<std::int8_t>(place);
    case HORA_UINT16:
      return read_as<std::uint16_t>(place);
    case HORA_INT16:
      return read_as<std::int16_t>(place);
    case HORA_INT32:
      return read_as<std::int32_t>(place);
    case HORA_INT64:
      // A double holds integers exactly up to 2^53.
      return static_cast<double>(read_as<std::int64_t>(place));
    case HORA_FLOAT16:
      return half_to_float(read_as<std::uint16_t>(place));
    case HORA_FLOAT32:
      return read_as<float>(place);
    case HORA_FLOAT64:
      return read_as<double>(place);
    case HORA_BFLOAT16:
      return bfloat_to_float(read_as<std::uint16_t>(place));
  }
  return 0;
}

// The value must be within the range of the dtype: C++ leaves other conversions undefined.
void write_element(void* data, hora_dtype dtype, std::int64_t index, double value) {
  auto* place =
      static_cast<unsigned char*>(data) + static_cast<std::size_t>(index) * dtype_bytes(dtype);
  switch (dtype) {
    case HORA_UINT8:
      return write_as(place, static_cast<std::uint8_t>(value));
    case HORA_BOOL:
      return write_as<std::uint8_t>(place, value != 0 ? 1 : 0);
    case HORA_INT8:
      return write_as(place, static_cast<std::int8_t>(value));
    case HORA_UINT16:
      return write_as(place, static_cast<std::uint16_t>(value));
    case HORA_INT16:
      return write_as(place, static_cast<std::int16_t>(value));
    case HORA_INT32:
      return write_as(place, static_cast<std::int32_t>(value));
    case HORA_INT64:
      return write_as(place, static_cast<std::int64_t>(value));
    case HORA_FLOAT16:
      // The formats exist only as conversions from float.
      return write_as(place, float_to_half(static_cast<float>(value)));
    case HORA_FLOAT32:
      return write_as(place, static_cast<float>(value));
    case HORA_FLOAT64:
      return write_as(place, value);
    case HORA_BFLOAT16:
      return write_as(place, float_to_bfloat(static_cast<float>(value)));
  }
}

}  // namespace hora::collectives
