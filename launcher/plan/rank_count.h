// SPDX-License-Identifier: Apache-2.0
// How many ranks a job gets.  [pure]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The ranks of a job for which no number was given: one for each slot. 64 bits wide, since many
// hosts with many slots exceed an int.
std::int64_t count_slots(const std::vector<Host>& hosts);
// Errors (kUsage): a job with a rank for each of so many slots is too large.
Status check_rank_count(std::int64_t slots);
// Errors (kUsage): no host can be told to run so many ranks. Slots that a host list gives are no
// more; -np alone, which is for this machine, can be.
Status check_ranks_of_host(const std::string& host, std::int64_t ranks);

}  // namespace hora::launcher
