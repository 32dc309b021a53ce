// SPDX-License-Identifier: Apache-2.0
#include "apps/smoke/session.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "collectives/kernels/elements.h"
#include "collectives/types.h"

namespace hora::smoke {

namespace {

using collectives::dtype_bytes;
using collectives::read_element;
using collectives::write_element;

// Long enough for a loaded machine, short enough that a job in CI does not hang on one lost rank.
constexpr std::int64_t kTimeoutMs = 60'000;

}  // namespace

Array::Array(hora_dtype dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), count_(1) {
  for (std::int64_t extent : shape_) count_ *= extent;
  // One byte more, so that an empty array has an address as well.
  bytes_.resize(static_cast<std::size_t>(count_) * dtype_bytes(dtype) + 1);
}

double Array::get(std::int64_t index) const { return read_element(bytes_.data(), dtype_, index); }

void Array::set(std::int64_t index, double value) {
  write_element(bytes_.data(), dtype_, index, value);
}

hora_tensor Array::view() {
  hora_tensor tensor{};
  tensor.data = bytes_.data();
  tensor.shape = shape_.data();
  tensor.ndim = static_cast<std::int32_t>(shape_.size());
  tensor.dtype = dtype_;
  tensor.device = HORA_CPU_DEVICE;
  return tensor;
}

// A request that is right but for its tensors: host memory, a plain sum, no scaling.
hora_request request_for(hora_operation operation, const char* name) {
  hora_request request{};
  request.struct_size = sizeof request;
  request.operation = operation;
  request.name = name;
  request.reduce_op = HORA_SUM;
  request.prescale = 1.0;
  request.postscale = 1.0;
  request.input.device = HORA_CPU_DEVICE;
  request.output.device = HORA_CPU_DEVICE;
  return request;
}

Answer run(const hora_request& request) {
  Answer answer;
  hora_handle handle = 0;
  answer.status = hora_submit(&request, 1, &handle);
  if (answer.status == HORA_OK) answer.status = hora_wait(handle, kTimeoutMs);
  if (answer.status != HORA_OK) {
    // Read before the next call of the library, which may replace it.
    answer.text = hora_last_error();
    hora_release(handle);
    return answer;
  }
  hora_tensor result{};
  // The runtime allocates results whose size depends on all ranks.
  if (request.output.data == nullptr && hora_result(handle, &result) == HORA_OK) {
    std::int64_t count = 1;
    answer.shape.assign(result.shape, result.shape + result.ndim);
    for (std::int64_t extent : answer.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      answer.values.push_back(read_element(result.data, static_cast<hora_dtype>(result.dtype), i));
    }
  }
  // How many rows came from each rank.
  const std::int64_t* splits = nullptr;
  std::int32_t split_count = 0;
  if (request.operation == HORA_ALLTOALL &&
      hora_received_splits(handle, &splits, &split_count) == HORA_OK) {
    answer.splits.assign(splits, splits + split_count);
  }
  hora_release(handle);
  return answer;
}

Answer allreduce(const char* name, Array& input, Array& output, hora_reduce_op op) {
  hora_request request = request_for(HORA_ALLREDUCE, name);
  request.input = input.view();
  request.output = output.view();
  request.reduce_op = op;
  return run(request);
}

Answer broadcast(const char* name, Array& data, int root) {
  hora_request request = request_for(HORA_BROADCAST, name);
  request.input = data.view();
  request.output = data.view();
  request.root_rank = root;
  return run(request);
}

Answer with_result(hora_operation operation, const char* name, Array& input, hora_reduce_op op,
                   const std::vector<std::int64_t>& splits) {
  hora_request request = request_for(operation, name);
  request.input = input.view();
  request.reduce_op = op;
  if (!splits.empty()) {
    request.splits = splits.data();
    request.split_count = static_cast<std::int32_t>(splits.size());
  }
  return run(request);
}

Answer barrier() { return run(request_for(HORA_BARRIER, nullptr)); }

namespace {

// If the ranks cannot agree, the report would be wrong.
[[noreturn]] void give_up(const Answer& answer) {
  std::fprintf(stderr, "hora-smoke: rank %d: %s\n", hora_rank(), answer.text.c_str());
  std::exit(1);
}

}  // namespace

double agree_on_sum(double mine) {
  Array value(HORA_FLOAT64, {1});
  value.set(0, mine);
  const Answer answer = allreduce("smoke.sum", value, value, HORA_SUM);
  if (answer.status != HORA_OK) give_up(answer);
  return value.get(0);
}

// Allgather concatenates the texts; the lengths, gathered first, separate them again.
std::vector<std::string> collect_texts(const std::string& mine) {
  Array length(HORA_INT64, {1});
  length.set(0, static_cast<double>(mine.size()));
  const Answer lengths = with_result(HORA_ALLGATHER, "smoke.lengths", length);
  if (lengths.status != HORA_OK) give_up(lengths);
  Array text(HORA_UINT8, {static_cast<std::int64_t>(mine.size())});
  std::memcpy(text.data(), mine.data(), mine.size());
  const Answer all = with_result(HORA_ALLGATHER, "smoke.texts", text);
  if (all.status != HORA_OK) give_up(all);
  std::vector<std::string> texts;
  std::size_t place = 0;
  for (double each : lengths.values) {
    std::string one;
    for (double i = 0; i < each; ++i) one += static_cast<char>(all.values[place++]);
    texts.push_back(std::move(one));
  }
  return texts;
}

}  // namespace hora::smoke
