// SPDX-License-Identifier: Apache-2.0
// A job as one mpirun command line, for each of the mpiruns that there are.  [pure]
// docs/reference/mpi.md has the table.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/plan/mpi_launchers.h"
#include "launcher/plan/worker_environment.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The hosts' answers, if they were asked.
struct HostFindings {
  std::vector<std::string> bundles;     // where the runtime lies; more than one where homes differ
  std::vector<std::string> interfaces;  // for traffic between the hosts
  std::vector<std::string> addresses;   // numeric, of those interfaces; one for each host
  std::string mpi_libraries = {};       // of mpirun's installation; empty: the system's
};

// The environment in which mpirun runs: the launcher's without what speaks of another job, with
// what options set, and the runtime's folders in front of the paths.
EnvironmentList mpirun_environment(const EnvironmentList& launcher_environment, const JobSpec& spec,
                                   const MpiLauncher& launcher, const HostFindings& findings);

// argv. `hosts` have their slots; `environment` is what mpirun_environment() made, of which only
// names are put on the command line. Errors (kUsage): what this mpirun, or mpirun at all, cannot
// do.
Result<std::vector<std::string>> plan_mpirun(const JobSpec& spec, const std::vector<Host>& hosts,
                                             const MpiLauncher& launcher,
                                             const HostFindings& findings,
                                             const EnvironmentList& environment);

}  // namespace hora::launcher
