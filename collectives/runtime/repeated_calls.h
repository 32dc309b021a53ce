// SPDX-License-Identifier: Apache-2.0
// The blocking calls that a program makes again and again, each prepared as a plan of one: the
// second such call checks, names and looks up nothing.
//
// Belongs to the thread that drives the runtime.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "collectives/runtime/operation.h"
#include "collectives/runtime/request_queue.h"
#include "hora/hora.h"

namespace hora::collectives {

class RepeatedCalls {
 public:
  // The operation of a request that was kept, on the memory of this request; null when there is
  // none. The request is of this version's size.
  const OperationPtr* find(const hora_request& request);
  // `made`: of this request, checked, and the caller's to give. One that is kept gives way to it.
  void keep(const hora_request& request, OperationPtr made, RequestQueue& queue);

 private:
  struct Call {
    hora_request request{};  // its pointers are not valid any more
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> splits;
    OperationPtr operation;  // null: free

    bool is(const hora_request& other) const;
    bool has_splits_of(const hora_request& other) const;
  };

  // Few, because they are compared one by one; most programs repeat one or two.
  static constexpr std::size_t kMost = 8;
  std::array<Call, kMost> calls_;
  std::size_t latest_ = 0;  // found
  std::size_t next_ = 0;    // to give way
};

}  // namespace hora::collectives
