// SPDX-License-Identifier: Apache-2.0
// Operations are reused with the memory of their strings and vectors: a training step submits the
// same names again, so it allocates nothing.
#include "collectives/runtime/operation.h"

#include <climits>
#include <mutex>
#include <utility>

#include "collectives/memory/futex.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

// Idle operations for reuse, shared by all threads and worlds of the process; handles may outlive a
// world.
class OperationPool {
 public:
  static OperationPool& instance() {
    static auto* const pool = new OperationPool;  // never destroyed: threads may end after statics
    return *pool;
  }

  Operation* take() {
    if (Operation* const mine = std::exchange(spare_.operation, nullptr)) return mine;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        Operation* const operation = idle_.back();
        idle_.pop_back();
        return operation;
      }
    }
    return new Operation;
  }

  void give(Operation* operation) {
    operation->reset();
    if (spare_.operation == nullptr && !spare_.over) {
      spare_.operation = operation;
      return;
    }
    give_to_all(operation);
  }

 private:
  static constexpr std::size_t kMostIdle = 4096;

  // One for the thread itself: a caller that waits for each operation before the next takes no
  // lock for it.
  struct Spare {
    Operation* operation = nullptr;
    bool over = false;  // the thread is ending
    ~Spare() {
      over = true;
      if (operation != nullptr) instance().give_to_all(std::exchange(operation, nullptr));
    }
  };

  void give_to_all(Operation* operation) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (idle_.size() < kMostIdle) {
        idle_.push_back(operation);
        return;
      }
    }
    delete operation;
  }

  std::mutex mutex_;
  std::vector<Operation*> idle_;
  static thread_local Spare spare_;
};

thread_local OperationPool::Spare OperationPool::spare_;

OperationPtr make_operation() {
  OperationPtr operation;
  operation.operation_ = OperationPool::instance().take();
  operation->owners_.store(1, std::memory_order_relaxed);
  return operation;
}

void OperationPtr::recycle(Operation* operation) { OperationPool::instance().give(operation); }

void Operation::reset() {
  // Moved out and back, so that the assignment of a fresh request does not free their memory.
  std::string name = std::move(request.name);
  std::vector<std::int64_t> shape = std::move(request.shape);
  name.clear();
  shape.clear();
  request = Request{};
  request.name = std::move(name);
  request.shape = std::move(shape);
  name_hash = 0;
  handle = 0;
  input = nullptr;
  output = nullptr;
  stream = nullptr;
  count = 0;
  pieces.clear();
  record = nullptr;
  asked_as = 0;
  known = {};
  result = ResultBuffer{};
  result_shape.clear();
  received_splits.clear();
  number = -1;
  status = HORA_OK;
  error.clear();
  state_.store(kInFlight, std::memory_order_relaxed);
}

void Operation::start_again(Clock::time_point now) {
  submitted = now;
  status = HORA_OK;
  error.clear();
  // The last finish was its thread's last access. Only its wake-up may be on its way still, and may
  // end the next wait early, which looks again.
  state_.store(kInFlight, std::memory_order_relaxed);
}

void Operation::finish(hora_status outcome, std::string_view text) {
  status = outcome;
  error = text;
  // Publishes status, error and result to a caller that sees kDone. The system call is made only if
  // a caller sleeps: kInFlight -> kWaitedFor -> kDone, or kInFlight -> kDone.
  if (state_.exchange(kDone, std::memory_order_acq_rel) == kWaitedFor) {
    futex(state_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }
}

bool Operation::wait(Deadline deadline) {
  while (!done()) {
    std::uint32_t expected = kInFlight;
    state_.compare_exchange_strong(expected, kWaitedFor, std::memory_order_acq_rel);
    if (expected == kDone) return true;
    timespec relative{};
    if (deadline != Deadline::max()) {
      relative = os::timespec_until(deadline);
      if (relative.tv_sec == 0 && relative.tv_nsec == 0) return done();
    }
    // The kernel compares the word again: a finish() in between makes this return at once.
    futex(state_, FUTEX_WAIT_PRIVATE, kWaitedFor,
          deadline == Deadline::max() ? nullptr : &relative);
  }
  return true;
}

}  // namespace hora::collectives
