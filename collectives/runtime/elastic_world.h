// SPDX-License-Identifier: Apache-2.0
// This process's place in an elastic job, which changes from epoch to epoch: asked of the launcher,
// kept over the variables that it started with. docs/flows/elastic.md.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/contract/elastic_place.h"

namespace hora::collectives {

// Whether horarun started this process as a worker of an elastic job.
bool in_elastic_job();

// A variable of the environment as it is in this process's present epoch.
std::optional<std::string> elastic_variable(std::string_view name);

// This process could not connect to that one in the present epoch. The launcher gets this with the
// request for the next place, so that it leaves a host out that is cut off for good.
void note_unreached(const rendezvous::PeerOfEpoch& peer);

// Reports to the launcher that the present epoch is over for this process, and blocks until there
// is a place in the next one. False: this process is no longer needed.
Result<bool> take_next_place();

// Blocks until the launcher reports a change of hosts in this epoch, at most `timeout`. 0: none;
// else bits: 1 some have gone, 2 some have come.
Result<int> wait_host_update(std::chrono::milliseconds timeout);

}  // namespace hora::collectives
