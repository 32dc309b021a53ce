// SPDX-License-Identifier: Apache-2.0
#include "collectives/types.h"

namespace hora::collectives {

namespace {

// Both tables are indexed by hora_dtype.
constexpr std::size_t kBytes[kDtypeCount] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
constexpr std::string_view kNames[kDtypeCount] = {"uint8",   "int8",  "uint16",  "int16",
                                                  "int32",   "int64", "float16", "float32",
                                                  "float64", "bool",  "bfloat16"};

}  // namespace

bool is_dtype(std::int32_t value) { return value >= 0 && value < kDtypeCount; }
bool is_reduce_op(std::int32_t value) { return value >= HORA_AVERAGE && value <= HORA_PRODUCT; }
bool is_operation(std::int32_t value) {
  // 4 is a gap in the numbering, which follows Horovod's request types.
  return value >= HORA_ALLREDUCE && value <= HORA_REDUCESCATTER && value != 4;
}

std::size_t dtype_bytes(hora_dtype dtype) { return kBytes[dtype]; }

bool is_floating(hora_dtype dtype) {
  return dtype == HORA_FLOAT16 || dtype == HORA_FLOAT32 || dtype == HORA_FLOAT64 ||
         dtype == HORA_BFLOAT16;
}

std::string_view dtype_name(hora_dtype dtype) {
  return is_dtype(dtype) ? kNames[dtype] : "unknown dtype";
}

std::string_view operation_name(hora_operation operation) {
  switch (operation) {
    case HORA_ALLREDUCE:
      return "allreduce";
    case HORA_ALLGATHER:
      return "allgather";
    case HORA_BROADCAST:
      return "broadcast";
    case HORA_JOIN:
      return "join";
    case HORA_ALLTOALL:
      return "alltoall";
    case HORA_BARRIER:
      return "barrier";
    case HORA_REDUCESCATTER:
      return "reducescatter";
  }
  return "unknown operation";
}

std::string_view reduce_op_name(hora_reduce_op op) {
  switch (op) {
    case HORA_AVERAGE:
      return "average";
    case HORA_SUM:
      return "sum";
    case HORA_ADASUM:
      return "adasum";
    case HORA_MIN:
      return "min";
    case HORA_MAX:
      return "max";
    case HORA_PRODUCT:
      return "product";
  }
  return "unknown reduction";
}

std::string format_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  // An extent of 0 must not hide an overflow or a negative extent after it.
  bool empty = false;
  for (std::int64_t extent : shape) {
    if (extent < 0) return -1;
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(count, extent, &count)) {
      return -1;
    }
  }
  return empty ? 0 : count;
}

// A row is what allgather, alltoall and reducescatter never divide: all dimensions but the first.
std::int64_t row_elements(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return 1;
  return element_count(std::vector<std::int64_t>(shape.begin() + 1, shape.end()));
}

// The first ranks get one more where it does not divide evenly, as in Horovod. Every rank computes
// this for all, so the shares need not travel.
std::vector<std::int64_t> even_rows(std::int64_t total, int size) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size), total / size);
  for (std::int64_t i = 0; i < total % size; ++i) ++rows[static_cast<std::size_t>(i)];
  return rows;
}

}  // namespace hora::collectives
