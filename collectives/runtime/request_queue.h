// Where the caller threads hand operations to the runtime: the one structure that both touch.
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collectives/runtime/operation.h"

namespace hora::collectives {

class RequestQueue {
 public:
  // kQueuedFirst: nothing else was waiting to be taken; kQueuedAlone: nor in flight.
  enum class Push { kQueued, kQueuedFirst, kQueuedAlone, kDuplicate, kClosed };

  // All or none. On kDuplicate `detail` gets the name, on kClosed the reason.
  Push push(std::vector<OperationPtr> operations, std::string& detail) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
      detail = closing_text_;
      return Push::kClosed;
    }
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (in_flight_.insert(key(*operations[i])).second) continue;
      detail = operations[i]->request.name;
      for (std::size_t j = 0; j < i; ++j) in_flight_.erase(key(*operations[j]));
      return Push::kDuplicate;
    }
    const bool first = waiting_.empty();
    for (OperationPtr& operation : operations) waiting_.push_back(std::move(operation));
    if (!first) return Push::kQueued;
    return in_flight_.size() == waiting_.size() ? Push::kQueuedAlone : Push::kQueuedFirst;
  }

  std::vector<OperationPtr> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(waiting_, {});
  }

  // The name may be used again. Before the operation is finished, so that whoever saw it finish
  // can submit the next one.
  void release_name(const Operation& operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    in_flight_.erase(key(operation));
  }

  // From now on nothing is accepted, for this reason. Answers what was still waiting.
  std::vector<OperationPtr> close(std::string reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_) closing_text_ = std::move(reason);
    closed_ = true;
    return std::exchange(waiting_, {});
  }

 private:
  static std::string key(const Operation& operation) {
    return std::to_string(operation.request.process_set) + '/' + operation.request.name;
  }

  std::mutex mutex_;
  std::vector<OperationPtr> waiting_;
  std::unordered_set<std::string> in_flight_;
  bool closed_ = false;
  std::string closing_text_;
};

}  // namespace hora::collectives
