// One submitted operation, from hora_submit to hora_release.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "collectives/backends/backend.h"
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

struct Operation {
  // Written by the submitting thread, before the runtime sees it.
  Request request;
  std::int64_t handle = 0;
  const void* input = nullptr;
  void* output = nullptr;
  void* stream = nullptr;
  std::int64_t count = 0;  // elements of the input
  Clock::time_point submitted;

  // The runtime's own: the number by which rank 0 was asked for it; 0: in full.
  std::uint64_t asked_as = 0;

  // Written by the runtime before finish().
  ResultBuffer result;
  std::vector<std::int64_t> result_shape;
  std::vector<std::int64_t> received_splits;
  std::int64_t number = -1;  // join: the last rank; add process set: its id
  hora_status status = HORA_OK;
  std::string error;

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  // Once. Everything above is visible to whoever sees done().
  void finish(hora_status outcome, std::string text);
  // True when done; false when the deadline came first. Deadline::max() waits for ever.
  bool wait(Deadline deadline);

 private:
  static constexpr std::uint32_t kInFlight = 0;
  static constexpr std::uint32_t kWaitedFor = 1;  // in flight, and a thread sleeps on it
  static constexpr std::uint32_t kDone = 2;
  std::atomic<std::uint32_t> state_{kInFlight};
};

using OperationPtr = std::shared_ptr<Operation>;

}  // namespace hora::collectives
