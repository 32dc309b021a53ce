// SPDX-License-Identifier: Apache-2.0
// The requests that the ranks exchange about their tensors, and the agreed result. [pure]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/types.h"

namespace hora::collectives {

// What can be negotiated: hora.h's operations, and those of the runtime itself.
enum class Action : std::int32_t {
  kAllreduce = HORA_ALLREDUCE,
  kAllgather = HORA_ALLGATHER,
  kBroadcast = HORA_BROADCAST,
  kJoin = HORA_JOIN,
  kAlltoall = HORA_ALLTOALL,
  kBarrier = HORA_BARRIER,
  kReducescatter = HORA_REDUCESCATTER,
  kAddProcessSet = 100,     // shape = the global ranks
  kRemoveProcessSet = 101,  // shape = {id}
  kShutdown = 102,          // ready as soon as one rank asks
  kTune = 103,              // from rank 0, unasked; numbers = the parameters from here on
  kProcessSetOf = 104,      // shape = the global ranks; ready as soon as one rank asks
};

std::string_view action_name(Action action);
std::string title_of(Action action, std::string_view name);  // "allreduce 'loss'"
// True for collectives with tensors; false for what waits for all ranks, changes sets or ends.
bool moves_tensors(Action action);

// The tensors of a prepared set, which runs as one operation on all of them, end to end. Shared,
// because a set comes again and again: to copy it is to copy a pointer, and so, mostly, to compare.
class Members {
 public:
  struct List {
    std::vector<std::int64_t> counts;  // elements of each
    std::vector<std::string> names;

    friend bool operator==(const List&, const List&) = default;
  };

  Members() = default;  // of an operation on one tensor: none
  explicit Members(List list) : list_(std::make_shared<const List>(std::move(list))) {}

  explicit operator bool() const { return list_ != nullptr; }
  const List& operator*() const { return *list_; }
  const List* operator->() const { return list_.get(); }
  friend bool operator==(const Members& a, const Members& b) {
    if (a.list_ == b.list_) return true;
    return a.list_ != nullptr && b.list_ != nullptr && *a.list_ == *b.list_;
  }

 private:
  std::shared_ptr<const List> list_;
};

// The request of one rank. Fields that an action does not use keep their defaults.
struct Request {
  Action action = Action::kBarrier;
  std::int32_t process_set = 0;
  hora_dtype dtype = HORA_UINT8;
  hora_reduce_op reduce_op = HORA_SUM;
  std::int32_t root = -1;  // a global rank
  std::int32_t device = HORA_CPU_DEVICE;
  std::int32_t priority = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> splits;  // alltoall: rows for each rank of the set
  std::string group;                 // the first member's name; empty: alone
  std::int32_t group_size = 1;
  // For a prepared set: its name is that of the first, its shape the sum of their elements.
  Members members;

  friend bool operator==(const Request&, const Request&) = default;
};

// This rank's; in an allgather and an alltoall others may bring more. 0 where no tensor moves.
std::int64_t tensor_bytes(const Request& request);

// What all ranks of a set do next, in the same order on each of them.
struct Response {
  hora_status status = HORA_OK;  // HORA_OK: run it. Otherwise the operation ends with this
  std::string error;             // why, naming both sides; empty when HORA_OK

  // The agreed result of the ranks. name, action and process_set identify the rank's own request.
  Request agreed;
  // allgather: rows of each rank of the set. alltoall: rows from each rank to the receiver of this
  // response. join: the global rank that joined last. add process set, process set of: the id.
  // shutdown: the rank that asked, -1 for several.
  std::vector<std::int64_t> numbers;
  // Set indices of the ranks that have joined: they contribute the reduction's identity.
  std::vector<std::int32_t> joined;
  // alltoall, on the coordinator only: the splits of all ranks, row-major [sender][receiver].
  std::vector<std::int64_t> all_splits;

  friend bool operator==(const Response&, const Response&) = default;
};

}  // namespace hora::collectives
