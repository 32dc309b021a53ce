// SPDX-License-Identifier: Apache-2.0
// Where the caller threads hand operations to the runtime: the one structure that both touch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/negotiation/probe_table.h"
#include "collectives/runtime/operation.h"
#include "hora/hora.h"

namespace hora::collectives {

class RequestQueue {
 public:
  // kQueuedFirst: nothing else was waiting to be taken; kQueuedAlone: nor in flight. kNotAgain: see
  // push_again().
  enum class Push { kQueued, kQueuedFirst, kQueuedAlone, kDuplicate, kClosed, kNotAgain };

  // All or none. On kDuplicate `detail` gets the name, on kClosed the reason.
  Push push(std::span<const OperationPtr> operations, std::string& detail) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
      detail = closing_text_;
      return Push::kClosed;
    }
    const std::size_t others = in_flight_.fetch_add(operations.size(), std::memory_order_seq_cst);
    const NameRecord* const alone = alone_.load(std::memory_order_seq_cst);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      Operation& operation = *operations[i];
      // One that is prepared has brought it.
      if (operation.record == nullptr) operation.record = &record_of(operation);
      const bool free = operation.record != alone && !operation.record->in_flight;
      if (free) {
        operation.record->in_flight = true;
        continue;
      }
      detail = operation.request.name;
      for (std::size_t j = 0; j < i; ++j) operations[j]->record->in_flight = false;
      in_flight_.fetch_sub(operations.size(), std::memory_order_relaxed);
      return Push::kDuplicate;
    }
    for (const OperationPtr& operation : operations) follow(operation);
    const bool first = waiting_.empty();
    waiting_.insert(waiting_.end(), operations.begin(), operations.end());
    return queued(first, others);
  }

  // As push(), for requests that follow each other as they did the last time, with the same fields
  // but for their memory: the operations of that time are submitted once more, and nothing is
  // checked, hashed or copied. `hand_out` gives each its handle. kNotAgain: they must be pushed.
  // `exact`: each needs its own time; otherwise those that wait together may share one.
  Push push_again(std::span<const hora_request> requests, bool exact,
                  const std::function<void(std::span<const OperationPtr>)>& hand_out);

  // The records of these operations stay, whatever the callers submit, until let_go().
  void prepare(std::span<const OperationPtr> operations) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const OperationPtr& operation : operations) {
      operation->record = &record_of(*operation);
      ++operation->record->prepared;
    }
  }
  void let_go(std::span<const OperationPtr> operations) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const OperationPtr& operation : operations) --operation->record->prepared;
  }

  // The thread that drives runs this operation without the queue, if nothing else is in flight: its
  // name is in use until end_alone(). No lock: either a push sees the name, or this sees the push.
  bool begin_alone(const Operation& operation) {
    alone_.store(operation.record, std::memory_order_seq_cst);
    if (in_flight_.load(std::memory_order_seq_cst) == 0 && !closed_) return true;
    end_alone();
    return false;
  }
  void end_alone() { alone_.store(nullptr, std::memory_order_release); }
  // It takes longer: from now on it is as if it had been taken from the queue.
  void keep_in_flight(const Operation& operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    operation.record->in_flight = true;
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    end_alone();
  }

  // All that was submitted has finished.
  bool nothing_in_flight() const { return in_flight_.load(std::memory_order_acquire) == 0; }

  // take() would answer something.
  bool something_waits() const { return something_waits_.load(std::memory_order_acquire); }

  // The waiting operations, replacing those in `operations`.
  void take(std::vector<OperationPtr>& operations) {
    operations.clear();
    if (!something_waits()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    something_waits_.store(false, std::memory_order_relaxed);
    std::swap(waiting_, operations);
  }

  // When what waits longest was submitted; nothing when nothing waits.
  std::optional<Clock::time_point> oldest() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.front()->submitted);
  }

  // The names may be used again. Before the operations are finished, so that a caller that saw one
  // finish can submit the next one.
  void release_names(std::span<const OperationPtr> operations) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const OperationPtr& operation : operations) {
      if (operation == nullptr) continue;
      operation->record->in_flight = false;
      in_flight_.fetch_sub(1, std::memory_order_release);
    }
  }

  // Finishes operations that were taken; nulls among them are left out. The list is empty then: a
  // caller that has seen one finish must be its last owner, and may submit it once more.
  void finish(std::vector<OperationPtr> operations, hora_status status, std::string_view text) {
    release_names(operations);
    for (OperationPtr& each : operations) {
      if (const OperationPtr operation = std::move(each)) operation->finish(status, text);
    }
  }
  void finish(const OperationPtr& operation, hora_status status, std::string_view text) {
    release_names({&operation, 1});
    if (operation != nullptr) operation->finish(status, text);
  }

  // From now on nothing is accepted, for this reason. Answers what was still waiting.
  std::vector<OperationPtr> close(std::string reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_) closing_text_ = std::move(reason);
    closed_ = true;
    return std::exchange(waiting_, {});
  }

 private:
  using RecordPtr = std::unique_ptr<NameRecord>;

  NameRecord& record_of(const Operation& operation);
  void forget_idle_names();
  void follow(const OperationPtr& operation);
  // `first`: nothing waited before this; `others`: how many were in flight.
  Push queued(bool first, std::size_t others) {
    something_waits_.store(true, std::memory_order_release);
    if (!first) return Push::kQueued;
    return others == 0 ? Push::kQueuedAlone : Push::kQueuedFirst;
  }

  static constexpr std::size_t kLeastKept = 8192;

  mutable std::mutex mutex_;
  std::vector<OperationPtr> waiting_;
  ProbeTable<RecordPtr> records_;
  std::size_t keep_ = kLeastKept;
  NameRecord* last_ = nullptr;             // of what was submitted last; a plan does not count
  std::atomic<std::size_t> in_flight_{0};  // written with the lock
  std::atomic<const NameRecord*> alone_{nullptr};
  std::atomic<bool> something_waits_{false};
  std::atomic<bool> closed_{false};  // written with the lock
  std::string closing_text_;
};

}  // namespace hora::collectives
