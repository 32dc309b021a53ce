// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <functional>
#include <numeric>

#include "ranks.h"
#include "tensors.h"

namespace hora::test {

hora_request bare_request(hora_operation operation) {
  hora_request request{};
  request.struct_size = sizeof request;
  request.operation = operation;
  request.prescale = 1.0;
  request.postscale = 1.0;
  request.input.device = HORA_CPU_DEVICE;
  request.output.device = HORA_CPU_DEVICE;
  return request;
}

hora_request reduce_request(const char* name, Tensor& input, Tensor& output, hora_reduce_op op) {
  hora_request request = bare_request(HORA_ALLREDUCE);
  request.name = name;
  request.input = input.view();
  request.output = output.view();
  request.reduce_op = op;
  return request;
}

hora_request result_request(hora_operation operation, const char* name, Tensor& input) {
  hora_request request = bare_request(operation);
  request.name = name;
  request.input = input.view();
  request.reduce_op = HORA_SUM;
  return request;
}

hora_request broadcast_request(const char* name, Tensor& input, Tensor& output, int root) {
  hora_request request = bare_request(HORA_BROADCAST);
  request.name = name;
  request.input = input.view();
  request.output = output.view();
  request.root_rank = root;
  return request;
}

Call::Call(Communicator& communicator, const hora_request& request)
    : Call(communicator, std::vector<hora_request>{request}) {}

Call::Call(Communicator& communicator, const std::vector<hora_request>& group)
    : communicator_(&communicator), handles_(group.size(), 0) {
  submitted_ = communicator.submit(group, handles_.data());
}

Call::~Call() {
  for (hora_handle handle : handles_) communicator_->release(handle);
}

OperationPtr Call::operation(std::size_t member) const {
  return communicator_->find(handles_[member]);
}

const void* Call::result(std::size_t member) {
  const OperationPtr found = operation(member);
  if (test_device() == HORA_CPU_DEVICE) return found->result.data();
  if (copied_ == member) return on_host_.data();
  const auto& shape = found->result_shape;
  const auto count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const auto dtype = static_cast<hora_dtype>(found->request.dtype);
  on_host_.resize(static_cast<std::size_t>(count) * collectives::dtype_bytes(dtype));
  copy_from_device(on_host_.data(), found->result.data(), on_host_.size());
  copied_ = member;
  return on_host_.data();
}

hora_status Call::wait(std::chrono::minutes timeout) {
  if (submitted_.status != HORA_OK) return submitted_.status;
  const Deadline deadline = Clock::now() + timeout;
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    if (!communicator_->wait(*operation(i), deadline)) return HORA_TIMED_OUT;
  }
  return operation(0)->status;
}

std::string Call::error() const {
  if (submitted_.status != HORA_OK) return submitted_.text;
  return operation(0)->done() ? operation(0)->error : "still in flight";
}

Call& Call::finish(std::chrono::minutes timeout) {
  const hora_status status = wait(timeout);
  check(status == HORA_OK, std::string(hora_status_name(status)) + ": " + error());
  return *this;
}

}  // namespace hora::test
