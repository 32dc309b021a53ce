// SPDX-License-Identifier: Apache-2.0
// --mpi: the ranks are started by the site's mpirun. Both calls block: for at most 30 s until
// mpirun has reported its version, and for a launch as long as the hosts take. On the main thread.
#pragma once

#include <string>

#include "launcher/parts/bundle.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The command line as it would be executed, and what is only known at launch.
Result<std::string> mpirun_dry_run(const JobSpec& spec, const EnvironmentList& environment);

// Brings the runtime to the hosts, then becomes mpirun: on success it does not return, and the exit
// code is mpirun's. An int: the exit code of a preparation that failed, whose messages are printed.
Result<int> run_by_mpirun(const JobSpec& spec, const Installation& installation,
                          const EnvironmentList& environment);

}  // namespace hora::launcher
