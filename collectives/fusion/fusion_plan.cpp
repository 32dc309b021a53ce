#include "collectives/fusion/fusion_plan.h"

#include <tuple>

namespace hora::collectives {

namespace {

bool can_fuse(const Verdict& verdict) {
  return verdict.status == HORA_OK && verdict.agreed.action == Action::kAllreduce &&
         verdict.agreed.reduce_op != HORA_ADASUM;
}

auto key(const Verdict& verdict) {
  const Request& agreed = verdict.agreed;
  return std::tie(agreed.process_set, agreed.dtype, agreed.reduce_op, agreed.device,
                  agreed.priority, agreed.prescale, agreed.postscale, verdict.joined);
}

std::int64_t bytes_of(const Verdict& verdict) {
  return element_count(verdict.agreed.shape) *
         static_cast<std::int64_t>(dtype_bytes(verdict.agreed.dtype));
}

}  // namespace

std::vector<std::vector<std::size_t>> plan_fusion(std::span<const Verdict* const> verdicts,
                                                  const FusionThreshold& threshold_of) {
  struct Open {
    std::size_t step;
    std::int64_t bytes;
    std::size_t sample;
  };
  std::vector<std::vector<std::size_t>> steps;
  std::vector<Open> open;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Verdict& verdict = *verdicts[i];
    // Nothing of a set moves past what changes the meaning of its others, and past that of the
    // world nothing at all. Of another set's, a rank may not have heard.
    if (!moves_tensors(verdict.agreed.action)) {
      const std::int32_t fenced = verdict.agreed.process_set;
      std::erase_if(open, [&](const Open& each) {
        return fenced == 0 || verdicts[each.sample]->agreed.process_set == fenced;
      });
    }
    const std::int64_t threshold_bytes =
        can_fuse(verdict) ? threshold_of(verdict.agreed.process_set) : 0;
    if (threshold_bytes <= 0) {
      steps.push_back({i});
      continue;
    }
    const std::int64_t bytes = bytes_of(verdict);
    bool placed = false;
    for (Open& each : open) {
      if (each.bytes + bytes > threshold_bytes) continue;
      if (key(*verdicts[each.sample]) != key(verdict)) continue;
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
