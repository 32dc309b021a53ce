// SPDX-License-Identifier: Apache-2.0
// Which vendors' libraries a job needs on its hosts, and where this machine has them.
#pragma once

#include <string>
#include <vector>

#include "launcher/build/vendor_need.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// kUsage: HORA_MPI or HORA_NCCL is none of its values, or asks to send what is not here. A file
// that no launch has seen before is read; what is known of it is kept in the user's cache
// (known_hashes.h).
// Optional ones that the user has not named by their variable may be left out: a plan need not tell
// of what most jobs make no use of, and what takes a second to read.
enum class OptionalNeeds { kAll, kNamed };
Result<std::vector<VendorNeed>> vendor_needs_of(const JobSpec& spec,
                                                const EnvironmentList& environment,
                                                OptionalNeeds optional = OptionalNeeds::kAll);

// Where ranks look for libraries first: the LD_LIBRARY_PATH that they get, "a:b".
std::string library_path(const JobSpec& spec, const EnvironmentList& environment);
// And then, as far as this machine has the program: its own run path, "a:b".
std::string program_run_path(const JobSpec& spec, const EnvironmentList& environment);

// Where this machine's NCCL is looked for before the system's folders.
std::vector<std::string> nccl_folders(const JobSpec& spec, const EnvironmentList& environment);

}  // namespace hora::launcher
