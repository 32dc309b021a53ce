// SPDX-License-Identifier: Apache-2.0
// First fit: each reduction joins the first open step that has its key and room for its bytes,
// otherwise it opens one. The order of the steps is that of their first members.
#include "collectives/runtime/fusion_plan.h"

#include <tuple>

namespace hora::collectives {

namespace {

// Adasum treats each tensor as a vector of its own, so a fused one would give another result.
bool can_fuse(const Response& response) {
  return response.status == HORA_OK && response.agreed.action == Action::kAllreduce &&
         response.agreed.reduce_op != HORA_ADASUM;
}

// The properties that the members of a step must share: the kernels handle a step as one long
// vector.
auto key(const Response& response) {
  const Request& agreed = response.agreed;
  return std::tie(agreed.process_set, agreed.dtype, agreed.reduce_op, agreed.device,
                  agreed.priority, agreed.prescale, agreed.postscale, response.joined);
}

// Operations without a group count as one: they may share steps with each other.
bool may_share_by_group(const Response& one, const Response& other, Groups groups) {
  return groups == Groups::kMixed || one.agreed.group == other.agreed.group;
}

std::int64_t bytes_of(const Response& response) {
  return element_count(response.agreed.shape) *
         static_cast<std::int64_t>(dtype_bytes(response.agreed.dtype));
}

}  // namespace

std::vector<std::vector<std::size_t>> plan_fusion(std::span<const Response* const> responses,
                                                  const FusionThreshold& threshold_of,
                                                  Groups groups) {
  // A step that may still grow; `sample` is its first response.
  struct Open {
    std::size_t step;
    std::int64_t bytes;
    std::size_t sample;
  };
  std::vector<std::vector<std::size_t>> steps;
  std::vector<Open> open;
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const Response& response = *responses[i];
    // An operation that is not a tensor's (a barrier, a new or removed set) is a fence: nothing of
    // its set moves past it, and nothing at all past one of the world. It must not affect other
    // sets, since their ranks may not know of it.
    if (!moves_tensors(response.agreed.action)) {
      const std::int32_t fenced = response.agreed.process_set;
      std::erase_if(open, [&](const Open& each) {
        return fenced == 0 || responses[each.sample]->agreed.process_set == fenced;
      });
    }
    const std::int64_t threshold_bytes =
        can_fuse(response) ? threshold_of(response.agreed.process_set) : 0;
    if (threshold_bytes <= 0) {
      steps.push_back({i});
      continue;
    }
    const std::int64_t bytes = bytes_of(response);
    bool placed = false;
    for (Open& each : open) {
      if (each.bytes + bytes > threshold_bytes) continue;
      const Response& sample = *responses[each.sample];
      if (key(sample) != key(response) || !may_share_by_group(sample, response, groups)) continue;
      steps[each.step].push_back(i);
      each.bytes += bytes;
      placed = true;
      break;
    }
    if (!placed) {
      open.push_back({steps.size(), bytes, i});
      steps.push_back({i});
    }
  }
  return steps;
}

}  // namespace hora::collectives
