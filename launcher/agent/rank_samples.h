// SPDX-License-Identifier: Apache-2.0
// What the ranks of this host do now: figures of the kernel and of the runtime, for a launcher that
// asks. Nothing is read while none asks.
#pragma once

#include <sys/types.h>

#include <vector>

#include "launcher/agent/flight_records.h"
#include "launcher/agent/output_pump.h"
#include "launcher/agent/rank_processes.h"
#include "launcher/process/process_table.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// Of a process and of its descendants that live.
ProcessUsage usage_of_tree(pid_t pid);

std::vector<RankSample> take_samples(const std::vector<RankProcess>& living,
                                     const FlightRecords& records, const OutputPump& output);

}  // namespace hora::launcher
