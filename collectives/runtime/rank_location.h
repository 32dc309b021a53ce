// SPDX-License-Identifier: Apache-2.0
// Where this process runs: its machine, its addresses, and what the launcher says of both.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/launcher_bootstrap.h"
#include "collectives/runtime/rank_info.h"
#include "collectives/runtime/settings.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// The environment of this process.

// A variable's value; nothing when it is not set. Fits Variables (settings.h).
std::optional<std::string> process_variable(std::string_view name);

// Which ranks share memory.

// Equal in two processes if they can share memory: the same boot of a kernel, and the same
// /dev/shm.
std::string machine_identity();

// The place of a rank, computed from which ranks share a machine.

// machines: by rank, equal where two ranks share memory.
LauncherPlace place_among(const std::vector<std::string>& machines, int rank);

// Where this rank is on its machine: its number among the ranks there, and the core of its thread.

// Sets local and cross rank by the machines that the ranks have reported. The launcher takes each
// process of an engine for a host; functions that ask for their local rank mean the machine.
void find_place_on_machine(const std::vector<RankInfo>& ranks, Settings& settings);

// HOROVOD_THREAD_AFFINITY. The job runs as well without: a list for other hosts, or a core that a
// container has taken away, must not end it.
void pin_to_core(std::thread& thread, const Settings& settings);

// This host's own address, as the other hosts can use it.

// The address of the interface with this name; kUsage when there is none.
Result<std::string> address_of_interface(const std::string& name);
// The one from which the kernel would send to `there`. Sends nothing.
Result<std::string> own_address_towards(const Endpoint& there);

}  // namespace hora::collectives
