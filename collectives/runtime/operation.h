// SPDX-License-Identifier: Apache-2.0
// One submitted operation, from hora_submit to hora_release.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backend.h"
#include "collectives/negotiation/request.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

struct FreeResult {
  const BackendDescriptor* owner = nullptr;  // null: host memory
  std::int32_t device = HORA_CPU_DEVICE;
  void operator()(void* memory) const {
    if (owner == nullptr) {
      std::free(memory);
    } else {
      owner->release(device, memory);
    }
  }
};

// Memory for a result: not initialised, aligned for vectors. In host memory, or where a backend has
// allocated it.
class ResultBuffer {
 public:
  // False when there is not that much memory.
  bool allocate(std::int64_t bytes) {
    const std::size_t rounded = (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
    data_ = {std::aligned_alloc(64, rounded == 0 ? 64 : rounded), FreeResult{}};
    return data_ != nullptr;
  }
  // On a device, with a copy of `content` (null: not initialised). `owner` lives as long as the
  // process.
  bool allocate_on(const BackendDescriptor& owner, std::int32_t device, std::int64_t bytes,
                   const void* content) {
    const auto size = static_cast<std::size_t>(bytes == 0 ? 1 : bytes);
    data_ = {owner.allocate(device, size, bytes == 0 ? nullptr : content),
             FreeResult{&owner, device}};
    return data_ != nullptr;
  }
  void* data() const { return data_.get(); }

 private:
  std::unique_ptr<void, FreeResult> data_;
};

struct NameRecord;
class OperationPtr;

struct Operation {
  // Written by the submitting thread, before the runtime sees it.
  Request request;
  std::uint64_t name_hash = 0;
  std::int64_t handle = 0;
  const void* input = nullptr;
  void* output = nullptr;
  void* stream = nullptr;
  std::int64_t count = 0;  // elements of the input
  // For a prepared set, instead of the four above, where count is the sum. Else empty.
  std::vector<Piece> pieces;
  Clock::time_point submitted;

  NameRecord* record = nullptr;  // while it is in flight
  // The runtime's own: the number by which rank 0 was asked for it; 0: in full. Of one that is
  // submitted once more: by which it was asked for the last time.
  std::uint64_t asked_as = 0;
  // The fast path's name for it. For a barrier: its index in its set, from 1. Else the runtime's
  // own: its number when the response cache was `at` that state of learned().
  struct FastPathName {
    std::uint64_t number = 0;
    std::uint64_t at = 0;
  } known;

  // Written by the runtime before finish().
  ResultBuffer result;
  std::vector<std::int64_t> result_shape;
  std::vector<std::int64_t> received_splits;
  std::int64_t number = -1;  // join: the last rank; add process set: its id
  hora_status status = HORA_OK;
  std::string error;

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  // Once. Everything above is visible to a reader of done().
  void finish(hora_status outcome, std::string_view text);
  // True when done; false when the deadline came first. Deadline::max() waits for ever.
  bool wait(Deadline deadline);
  // For one that is not in flight: the same request is submitted once more.
  void start_again(Clock::time_point now);
  // As finish() without a failure, for one that no other thread has seen start.
  void finish_at_once() { state_.store(kDone, std::memory_order_release); }

 private:
  friend class OperationPtr;
  friend class OperationPool;
  friend OperationPtr make_operation();

  // As new, but for the memory that its texts and lists have.
  void reset();

  static constexpr std::uint32_t kInFlight = 0;
  static constexpr std::uint32_t kWaitedFor = 1;  // in flight, and a thread sleeps on it
  static constexpr std::uint32_t kDone = 2;
  std::atomic<std::uint32_t> state_{kInFlight};
  std::atomic<std::uint32_t> owners_{0};
};

// Shares an operation. Whose last owner is gone is used again for another one: the operations of a
// training step are many and alike.
class OperationPtr {
 public:
  OperationPtr() = default;
  OperationPtr(std::nullptr_t) {}  // NOLINT: as the standard's pointers
  OperationPtr(const OperationPtr& other) : operation_(other.operation_) {
    if (operation_ != nullptr) operation_->owners_.fetch_add(1, std::memory_order_relaxed);
  }
  OperationPtr(OperationPtr&& other) noexcept
      : operation_(std::exchange(other.operation_, nullptr)) {}
  OperationPtr& operator=(OperationPtr other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~OperationPtr() {
    if (operation_ != nullptr && operation_->owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      recycle(operation_);
    }
  }

  Operation* get() const { return operation_; }
  Operation* operator->() const { return operation_; }
  Operation& operator*() const { return *operation_; }
  explicit operator bool() const { return operation_ != nullptr; }
  friend bool operator==(const OperationPtr& each, std::nullptr_t) {
    return each.operation_ == nullptr;
  }
  // There is no other reference.
  bool alone() const { return operation_->owners_.load(std::memory_order_acquire) == 1; }

 private:
  friend OperationPtr make_operation();
  static void recycle(Operation* operation);

  Operation* operation_ = nullptr;
};

OperationPtr make_operation();

// The runtime's memory of a name, also between the operations that have it (request_queue.h).
struct NameRecord {
  std::int32_t process_set = 0;
  std::string name;
  std::uint64_t hash = 0;
  // The queue's.
  bool in_flight = false;
  int prepared = 0;            // how many plans have operations of this name
  bool seen = false;           // submitted before, other than by a plan
  OperationPtr operation;      // the last of them, to be submitted once more; null: there was one
  NameRecord* next = nullptr;  // the name that was submitted after this one, the last time
  std::uint64_t number = 0;    // of the thread that drives: what the response cache answered last
};

}  // namespace hora::collectives
