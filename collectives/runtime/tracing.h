// SPDX-License-Identifier: Apache-2.0
// The world's properties that the timeline of one rank needs.
#pragma once

#include <optional>
#include <string>

#include "collectives/runtime/backend_pool.h"
#include "collectives/trace/timeline.h"
#include "collectives/trace/timeline_record.h"

namespace hora::collectives {

// The file that this rank writes when `path` is asked for: "{rank}" in it stands for the rank, and
// then every rank writes one; without it rank 0 alone does, and the others answer nothing.
std::optional<std::string> own_timeline_path(const std::string& path, int rank);

// From the exchanges by which the world was set up: nothing travels for it. Rank 0 is the reference
// clock, which ranks on its host share.
ClockOffset compare_clocks(const OobAllgather& oob, const World& world);

Timeline::Options timeline_options(const World& world, const ClockOffset& clock, std::string path,
                                   bool mark_cycles);

}  // namespace hora::collectives
