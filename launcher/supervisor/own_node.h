// SPDX-License-Identifier: Apache-2.0
// A node of a platform (launcher/platforms/) that shares no secret with the others. To node 0 it is
// a machine that has joined, with an agent; but it runs its own command line, as a job of its own
// with one local agent, and takes nothing from node 0 but ranks, the way to the other ranks, and
// the end of the job.
#pragma once

#include <memory>

#include "launcher/dial/join.h"
#include "launcher/parts/bundle.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"

namespace hora::launcher {

// `stream` is of dial_launcher(join). Blocks until the whole job is over, and returns its exit
// code: node 0's, unless a signal to this process has ended the part here.
Result<int> run_own_node(JobSpec spec, const Installation& installation,
                         const EnvironmentList& environment, const JoinOptions& join,
                         std::unique_ptr<net::Stream> stream);

}  // namespace hora::launcher
