// SPDX-License-Identifier: Apache-2.0
// Where this rank is on its machine: its number among the ranks there, and the core of its thread.
#pragma once

#include <thread>
#include <vector>

#include "collectives/runtime/rank_info.h"
#include "collectives/runtime/settings.h"

namespace hora::collectives {

// Sets local and cross rank by the machines that the ranks have told. The launcher takes each
// process of an engine for a host; functions that ask for their local rank mean the machine.
void find_place_on_machine(const std::vector<RankInfo>& ranks, Settings& settings);

// HOROVOD_THREAD_AFFINITY. The job runs as well without: a list for other hosts, or a core that a
// container has taken away, must not end it.
void pin_to_core(std::thread& thread, const Settings& settings);

}  // namespace hora::collectives
