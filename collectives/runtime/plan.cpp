// SPDX-License-Identifier: Apache-2.0
// Reductions share a prepared set by the rules by which responses share a step (fusion_plan.cpp):
// first fit, by what the kernels need to be equal. The ranks do not agree on it by a message: they
// prepare the same requests, and a set that differs is a mismatch when it is started.
#include "collectives/runtime/plan.h"

#include <tuple>
#include <utility>

namespace hora::collectives {

namespace {

struct Open {
  std::size_t first;                 // of `operations`
  std::vector<std::size_t> members;  // with the first
  std::int64_t bytes;
};

// Adasum treats each tensor as a vector of its own, and a broadcast has one.
bool can_share(const Request& request) {
  return request.action == Action::kAllreduce && request.reduce_op != HORA_ADASUM;
}

// What one pass of a kernel over the whole set needs to be equal; the process set decides the
// members, and the priority the time.
auto key(const Request& request) {
  return std::tie(request.process_set, request.dtype, request.reduce_op, request.device,
                  request.priority, request.prescale, request.postscale);
}

// The stream is each tensor's own: they may come from several.
Piece piece_of(const Operation& operation) {
  return {operation.input, operation.output, operation.count, operation.stream};
}

// Makes the first one the whole set.
OperationPtr make_set(const std::vector<OperationPtr>& operations, const Open& open) {
  const OperationPtr& whole = operations[open.first];
  Members::List list;
  std::int64_t count = 0;
  for (const std::size_t at : open.members) {
    const Operation& each = *operations[at];
    list.counts.push_back(each.count);
    list.names.push_back(each.request.name);
    count += each.count;
  }
  // Only now: the first one is among them.
  for (const std::size_t at : open.members) whole->pieces.push_back(piece_of(*operations[at]));
  // The shapes of the tensors need not agree, only their elements: a set is one long vector.
  whole->request.shape = {count};
  whole->request.members = Members(std::move(list));
  whole->count = count;
  return whole;
}

}  // namespace

std::vector<OperationPtr> join_reductions(std::vector<OperationPtr> operations,
                                          std::int64_t threshold_bytes) {
  std::vector<Open> sets;
  // First fit, as for steps: with few kinds of tensors there are few open sets, and the later ones
  // of a kind do not make an earlier one grow past the threshold.
  for (std::size_t at = 0; at < operations.size(); ++at) {
    const Request& request = operations[at]->request;
    const std::int64_t bytes =
        operations[at]->count * static_cast<std::int64_t>(dtype_bytes(request.dtype));
    Open* fitting = nullptr;
    for (Open& each : sets) {
      const Request& sample = operations[each.first]->request;
      if (!can_share(request) || !can_share(sample) || key(sample) != key(request)) continue;
      if (each.bytes + bytes > threshold_bytes) continue;
      fitting = &each;
      break;
    }
    if (fitting == nullptr) fitting = &sets.emplace_back(Open{at, {}, 0});
    fitting->members.push_back(at);
    fitting->bytes += bytes;
  }
  // In the order of their first members. A start submits them in this order, so sets that are ready
  // at the same time run in it on every rank.
  std::vector<OperationPtr> joined;
  joined.reserve(sets.size());
  for (const Open& each : sets) {
    // A plan of one tensor is that tensor: other ranks may submit it without a plan.
    joined.push_back(each.members.size() == 1 ? operations[each.first]
                                              : make_set(operations, each));
  }
  return joined;
}

}  // namespace hora::collectives
