// SPDX-License-Identifier: Apache-2.0
// What the ranks of this host do now: figures of the kernel and of the runtime, for a launcher that
// asks. Nothing is read while none asks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "launcher/agent/flight_records.h"
#include "launcher/agent/rank_processes.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct TreeUsage {
  std::int64_t cpu_ms = 0;     // also of the children that were waited for
  std::int64_t rss_bytes = 0;  // pages that processes share count in each
};
// Of a process and of its descendants that live.
TreeUsage usage_of_tree(pid_t pid);

std::vector<RankSample> take_samples(const std::vector<RankProcess>& living,
                                     const FlightRecords& records);

}  // namespace hora::launcher
