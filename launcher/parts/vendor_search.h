// SPDX-License-Identifier: Apache-2.0
// Which vendors' libraries a job needs on its hosts, where this machine has them, and whether they
// load, in a child process since one may crash.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/parts/part_rules.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Looks for a vendor's library on this machine by loading it, as a rank would, in a child process,
// since it may crash or hang.

// Runs a function in a child process, for code that may crash or hang: a vendor's library.

// What `work` answers. Errors: kFailed when the child was ended by a signal or by exit(), kTimedOut
// when it took longer than `limit` (it is killed). Only for a process without other threads.
Result<std::string> run_isolated(const std::function<std::string()>& work,
                                 std::chrono::milliseconds limit);

// The output of a program, without the end of its last line, which it must write. Its standard
// error and input are /dev/null. Errors as above; kFailed also when there is no such program. Also
// for a process with threads.
Result<std::string> run_isolated_program(const std::vector<std::string>& words,
                                         std::chrono::milliseconds limit);

// Looks for a vendor's library on this machine by loading it, as a rank would.

struct VendorLibrary {
  std::string path;     // the file that the loader took; empty: none
  std::string version;  // as the library says; empty: it has no way to say
  std::string error;    // the loader's words, of the last place that was tried
};

// `feature` is a name of scripts/cmake/HoraFeatures.cmake. The folders are tried before the places
// that the loader knows; `built_location`, the file at build time, comes last. The library stays
// loaded: for a program that prints and ends.
VendorLibrary find_vendor_library(std::string_view feature, const std::vector<std::string>& folders,
                                  const std::string& built_location);

// Which vendors' libraries a job needs on its hosts, and where this machine has them.

// kUsage: HORA_MPI or HORA_NCCL has an invalid value, or asks to send what is not here. A file that
// no launch has seen before is read; the result is kept in the user's cache (hashes.h).
// Optional ones that the user has not named by their variable may be left out: a plan need not list
// what most jobs do not use, and what takes a second to read.
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
