// SPDX-License-Identifier: Apache-2.0
// A job from its first attempt to its last: with --restarts, one that fails is started again as the
// restart policy decides.
#pragma once

#include <functional>
#include <memory>

#include "launcher/parts/bundle.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Of hosts that are of no engine in launcher/engines; each may be unset.
struct HostOwner {
  Supervisor::Explain explain;
  // Reaches the hosts of an attempt; nullptr: as `spec.transport` does.
  std::function<std::unique_ptr<Transport>(const JobSpec& spec, StageObserver observer)> transport;
};

// Blocks until the job is over, and returns the exit code. ending_signals() must be blocked:
// between two attempts they are taken here. Errors are those of Supervisor::run(). A job that only
// looks at caches continues without hosts that cannot be reached; its exit code is then that of the
// first failure.
Result<int> run_attempts(JobSpec spec, const Installation& installation,
                         const EnvironmentList& environment, const HostOwner& owner = {});

}  // namespace hora::launcher
