// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace hora::test {

using namespace collectives;

Tensor::Tensor(hora_dtype dtype, std::vector<std::int64_t> shape, std::size_t misalignment)
    : dtype_(dtype),
      shape_(std::move(shape)),
      count_(element_count(shape_)),
      // On a GPU only elements as a whole may lie anywhere.
      offset_(test_device() == HORA_CPU_DEVICE ? misalignment : misalignment * dtype_bytes(dtype)),
      bytes_(static_cast<std::size_t>(count_) * dtype_bytes(dtype) + offset_ + 1) {}

hora_tensor Tensor::view() {
  hora_tensor tensor{};
  tensor.data = data();
  tensor.shape = shape_.data();
  tensor.ndim = static_cast<std::int32_t>(shape_.size());
  tensor.dtype = dtype_;
  tensor.device = test_device();
  return tensor;
}

double Tensor::get(std::int64_t index) const {
  return read_element(bytes_.data() + offset_, dtype_, index);
}

void Tensor::set(std::int64_t index, double value) {
  write_element(bytes_.data() + offset_, dtype_, index, value);
}

double value_at(hora_dtype dtype, int rank, std::int64_t index) {
  const std::int64_t mixed = (index * 7 + rank * 3 + index / 5) % 5;
  if (dtype == HORA_BOOL) return (mixed + rank) % 3 == 0 ? 1 : 0;
  const bool is_unsigned = dtype == HORA_UINT8 || dtype == HORA_UINT16;
  return static_cast<double>(is_unsigned ? mixed % 3 : mixed - 2);
}

void fill(Tensor& tensor, int rank, std::int64_t first_index) {
  const auto unit = static_cast<std::int64_t>(dtype_bytes(tensor.dtype()));
  auto* start = static_cast<unsigned char*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.count() && i < kPeriod; ++i) {
    tensor.set(i, value_at(tensor.dtype(), rank, first_index + i));
  }
  for (std::int64_t done = kPeriod; done < tensor.count(); done *= 2) {
    const std::int64_t more = std::min(done, tensor.count() - done);
    std::memcpy(start + done * unit, start, static_cast<std::size_t>(more * unit));
  }
}

double reduced(hora_dtype dtype, hora_reduce_op op, const std::vector<int>& ranks,
               std::int64_t index) {
  double result = value_at(dtype, ranks.front(), index);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const double value = value_at(dtype, ranks[i], index);
    switch (op) {
      case HORA_MIN:
        result = std::fmin(result, value);
        break;
      case HORA_MAX:
        result = std::fmax(result, value);
        break;
      case HORA_PRODUCT:
        result *= value;
        break;
      default:
        result += value;
        break;
    }
  }
  if (dtype == HORA_BOOL) return result != 0 ? 1 : 0;
  if (op != HORA_AVERAGE) return result;
  const double average = result / static_cast<double>(ranks.size());
  Tensor rounded(dtype, {1});
  rounded.set(0, average);
  return rounded.get(0);
}

std::string difference(const std::string& what, std::int64_t index, double found, double expected) {
  return what + ": element " + std::to_string(index) + " is " + std::to_string(found) +
         ", expected " + std::to_string(expected);
}

const std::vector<hora_dtype>& all_dtypes() {
  static const std::vector<hora_dtype> dtypes = {
      HORA_UINT8,   HORA_INT8,    HORA_UINT16,  HORA_INT16, HORA_INT32,   HORA_INT64,
      HORA_FLOAT16, HORA_FLOAT32, HORA_FLOAT64, HORA_BOOL,  HORA_BFLOAT16};
  return dtypes;
}

std::vector<hora_reduce_op> reductions_of(hora_dtype dtype) {
  if (dtype == HORA_BOOL) return {HORA_SUM, HORA_MIN, HORA_MAX, HORA_PRODUCT};
  return {HORA_SUM, HORA_AVERAGE, HORA_MIN, HORA_MAX, HORA_PRODUCT};
}

}  // namespace hora::test
