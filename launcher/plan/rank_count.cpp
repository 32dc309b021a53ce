// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/rank_count.h"

#include <string>

#include "launcher/plan/plan.h"

namespace hora::launcher {

std::int64_t count_slots(const std::vector<Host>& hosts) {
  std::int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots.value_or(0);
  return slots;
}

Status check_rank_count(std::int64_t slots) {
  if (slots <= kMaxRanks) return Ok{};
  return make_error(ErrorCode::kUsage, "the hosts offer " + std::to_string(slots) +
                                           " slots; a job has at most " +
                                           std::to_string(kMaxRanks) + " ranks; limit it with -np");
}

Status check_ranks_of_host(const std::string& host, std::int64_t ranks) {
  if (ranks <= kMaxSlotsPerHost) return Ok{};
  return make_error(ErrorCode::kUsage,
                    std::to_string(ranks) + " ranks are too many for one host (" + host +
                        "): it runs at most " + std::to_string(kMaxSlotsPerHost) +
                        "; ask for fewer ranks (-np), or name more hosts, such as -H a:64,b:64");
}

}  // namespace hora::launcher
