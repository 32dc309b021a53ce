// SPDX-License-Identifier: Apache-2.0
// Operations that are prepared once and started again and again: names, checks and the choice of
// what runs together are done with before the first start.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/runtime/operation.h"

namespace hora::collectives {

// Communicator::prepare() makes it. One thread at a time, except that any may ask whether it is
// done.
struct Plan {
  std::vector<OperationPtr> operations;
  bool started = false;

  bool done() const {
    for (const OperationPtr& each : operations) {
      if (!each->done()) return false;
    }
    return true;
  }
  // The first that failed; null: none did. Once done.
  const Operation* failed() const {
    for (const OperationPtr& each : operations) {
      if (each->status != HORA_OK) return each.get();
    }
    return nullptr;
  }
};

// Puts reductions that differ in name and shape only into prepared sets of at most
// `threshold_bytes`, each one operation; 0: every one stays as it is. The same on all ranks for the
// same operations.
std::vector<OperationPtr> join_reductions(std::vector<OperationPtr> operations,
                                          std::int64_t threshold_bytes);

}  // namespace hora::collectives
