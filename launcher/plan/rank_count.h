// SPDX-License-Identifier: Apache-2.0
// How many ranks a job gets.  [pure]
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The ranks of a job for which no number was given: one for each slot. 64 bits wide, since many
// hosts with many slots exceed an int.
std::int64_t count_slots(const std::vector<Host>& hosts);
// Errors (kUsage): a job with a rank for each of so many slots is too large.
Status check_rank_count(std::int64_t slots);

}  // namespace hora::launcher
