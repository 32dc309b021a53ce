// SPDX-License-Identifier: Apache-2.0
// The collectives as short calls, for tests. All throw when the library reports an error, unless
// they say otherwise.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "collectives/runtime/communicator.h"
#include "tensors.h"

namespace hora::test {

using collectives::Communicator;
using collectives::OperationPtr;

hora_request reduce_request(const char* name, Tensor& input, Tensor& output,
                            hora_reduce_op op = HORA_SUM);
// output.data = NULL: allgather, alltoall, reducescatter.
hora_request result_request(hora_operation operation, const char* name, Tensor& input);
hora_request broadcast_request(const char* name, Tensor& input, Tensor& output, int root);
hora_request bare_request(hora_operation operation);

// The operation, submitted; released by the destructor.
class Call {
 public:
  Call(Communicator& communicator, const hora_request& request);
  Call(Communicator& communicator, const std::vector<hora_request>& group);
  Call(Call&&) = default;
  Call& operator=(Call&&) = default;
  ~Call();

  const collectives::Outcome& submitted() const { return submitted_; }
  // HORA_TIMED_OUT when it takes longer. One status for each member of a group, the first.
  hora_status wait(std::chrono::minutes timeout = std::chrono::minutes(1));
  std::string error() const;
  // wait(), and throws unless HORA_OK.
  Call& finish(std::chrono::minutes timeout = std::chrono::minutes(1));
  OperationPtr operation(std::size_t member = 0) const;
  // Of what has finished: its result where the host can read it, until the next call.
  const void* result(std::size_t member = 0);

 private:
  Communicator* communicator_;
  collectives::Outcome submitted_;
  std::vector<hora_handle> handles_;
  std::vector<unsigned char> on_host_;  // a copy of the result of that member
  std::size_t copied_ = SIZE_MAX;
};

}  // namespace hora::test
