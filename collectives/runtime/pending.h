// SPDX-License-Identifier: Apache-2.0
// The operations of a process set that rank 0 has been asked for. Belongs to the thread that drives
// the runtime.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/negotiation/probe_table.h"
#include "collectives/negotiation/sequence.h"
#include "collectives/runtime/operation.h"

namespace hora::collectives {

// In a table by name. A sequence is a list instead until one of its operations is looked up: mostly
// all of it is answered together, too.
class Pending {
 public:
  bool empty() const { return table_.empty() && list_.empty(); }
  // `hash`: name_hash() of the name within this set.
  Operation* find(std::uint64_t hash, const std::string& name) {
    spread();
    const OperationPtr* found =
        table_.find(hash, [&](const OperationPtr& each) { return each->request.name == name; });
    return found == nullptr ? nullptr : found->get();
  }
  OperationPtr take(const Operation& operation) {
    spread();
    return table_.take(operation.name_hash,
                       [&](const OperationPtr& each) { return each.get() == &operation; });
  }
  void add(OperationPtr operation) {
    const std::uint64_t hash = operation->name_hash;
    table_.insert(hash, std::move(operation));
  }
  template <typename Function>
  void each(const Function& function) {
    spread();
    table_.each(function);
  }
  std::vector<OperationPtr> take_all() {
    spread();
    return table_.take_all();
  }

  // Takes those of a sequence.
  void add_together(std::span<OperationPtr> operations, SequencePtr sequence) {
    spread();
    list_.assign(std::make_move_iterator(operations.begin()),
                 std::make_move_iterator(operations.end()));
    sequence_ = std::move(sequence);
  }
  // The sequence, as long as it is a list.
  const SequencePtr& together() const { return sequence_; }
  std::vector<OperationPtr> take_together() {
    sequence_ = nullptr;
    return std::exchange(list_, {});
  }

 private:
  void spread() {
    if (sequence_ == nullptr) return;
    for (OperationPtr& each : take_together()) add(std::move(each));
  }

  ProbeTable<OperationPtr> table_;
  std::vector<OperationPtr> list_;
  SequencePtr sequence_;  // null: there is no list
};

}  // namespace hora::collectives
