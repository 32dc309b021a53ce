// SPDX-License-Identifier: Apache-2.0
// What all ranks of a set have agreed on and is to be run next, as this rank sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/negotiation/response_cache.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/process_set.h"

namespace hora::collectives {

struct AgreedOp {
  const Response* response = nullptr;
  std::unique_ptr<Response> made;   // unless the response cache has it
  CacheId number = 0;               // by which it is told; 0: in full
  std::uint64_t hash = 0;           // of its name
  const Operation* mine = nullptr;  // this rank's, pending; null when it takes no part
};

// This rank's operation is pending no more. Null when it takes no part.
inline OperationPtr take_pending(ProcessSet& set, const AgreedOp& each) {
  if (each.response->agreed.action == Action::kJoin) return std::exchange(set.joining, nullptr);
  return each.mine == nullptr ? nullptr : set.pending.take(*each.mine);
}

}  // namespace hora::collectives
