// SPDX-License-Identifier: Apache-2.0
// The base of backends whose operations block.
#pragma once

#include <exception>
#include <new>

#include "collectives/backend.h"

namespace hora::collectives {

// Reports an activity of a step to the timeline for as long as the object lives.

class Activity {
 public:
  // `name` is the name in Horovod's timeline, such as MPI_ALLREDUCE. The step must outlive this
  // object.
  Activity(const Step& step, const char* name) : listener_(step.activities) {
    if (listener_ != nullptr) listener_->begin(name);
  }
  ~Activity() {
    if (listener_ != nullptr) listener_->end();
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  Activities* listener_;
};

// What backends have in common: the choice of the function that runs an operation, and, for those
// that run one operation at a time to its end, the rest of the interface.

// Reports an exception during a step: such a failure begins in this rank.
inline void report_to(const std::exception& failure, ErrorText& error) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&failure) != nullptr;
  error.own = true;
  error.set("%s", memory ? "not enough memory" : failure.what());
}

// Calls the handler's function for the step's operation: allreduce(step, error), ...
template <typename Handler>
bool run_operation(Handler& handler, const Step& step, ErrorText& error) {
  switch (static_cast<hora_operation>(step.operation)) {
    case HORA_ALLREDUCE:
      return handler.allreduce(step, error);
    case HORA_ALLGATHER:
      return handler.allgather(step, error);
    case HORA_BROADCAST:
      return handler.broadcast(step, error);
    case HORA_ALLTOALL:
      return handler.alltoall(step, error);
    case HORA_REDUCESCATTER:
      return handler.reducescatter(step, error);
    case HORA_BARRIER:
      return handler.barrier(step, error);
    case HORA_JOIN:
      break;
  }
  return error.set("this backend does not support this operation");
}

// `Derived` is the final class; it has run(step, error), which may throw when memory runs out.
template <typename Derived>
class BlockingBackend : public Backend {
 public:
  Progress execute(const Step& step, std::uint64_t*, ErrorText& error) noexcept final {
    try {
      return static_cast<Derived*>(this)->run(step, error) ? Progress::kDone : Progress::kFailed;
    } catch (const std::exception& failure) {
      report_to(failure, error);
      return Progress::kFailed;
    }
  }
  Progress poll(std::uint64_t, ErrorText&) noexcept final { return Progress::kDone; }
  void destroy() noexcept override { delete static_cast<Derived*>(this); }

 protected:
  ~BlockingBackend() = default;
};

}  // namespace hora::collectives
