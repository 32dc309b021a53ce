// SPDX-License-Identifier: Apache-2.0
// The command line of hora-agent, which horarun writes.  [pure]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/plan/cache_limits.h"
#include "launcher/protocol/delivery.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct AgentOptions {
  std::vector<NeededPart> parts;  // of the runtime that the job needs; empty: none
  std::string cache_directory;    // absolute
  // Where programs of the job look for libraries first, "a:b"; without it, LD_LIBRARY_PATH counts.
  std::string library_path;
  std::string run_path;       // of the program on the launcher's machine, the same
  std::string program;        // of the job, which may have libraries of its own on this host
  std::string find;           // sonames to look for on this host besides those of `parts`, "a,b"
  std::string local_bundle;   // a bundle to use where it lies; nothing is copied then
  bool probe = false;         // answer probes of other hosts
  bool report_sha = false;    // SHA-256 of the own executable in Hello
  bool cleans_cache = false;  // its rank removes unused entries there
  // After its goodbye, until the launcher answers: a program between the two may lose what is under
  // way when the agent ends.
  bool stay = false;
  // Limit for the entries that the job leaves there (plan/cache_limits.h); 0: no limit.
  std::uint64_t cache_max_age_s = 0;
  std::uint64_t cache_max_bytes = 0;
  std::string own_sha256;  // empty: computed when Hello needs it
  // The launcher's process, where it is on this machine: as long as that is at work it may be
  // silent for longer than the lease. 0: it is elsewhere.
  int launcher = 0;
  // Where it may run when it leaves the CPU on which it was started, that of the launcher
  // (process/one_cpu.h): "0-3,8". Empty: it is everywhere already.
  std::string cpus;
  // An image: this agent only starts another one in it (agent/container_host.h). Empty: none.
  std::string container;
  std::string container_runtime;  // empty: the first one here
  std::string container_args;     // words of a shell
  std::string working_directory;  // of the job, which is to be seen there
  bool contained = false;         // this is that other one
  // Beyond the grace: when the launcher is gone and the agent does nothing, the shim steps in.
  int shim_margin_ms = 10'000;
  // For how long ranks stay stopped for a launcher that was suspended (Ctrl-Z) and may be gone with
  // its machine.
  int suspended_lease_ms = 24 * 3'600'000;
};

// The arguments after "hora-agent clean-cache".
struct CleanOptions {
  std::uint64_t max_age_s = 0;  // 0: no limit
  std::uint64_t max_bytes = 0;
  bool dry_run = false;
};
Result<CleanOptions> parse_clean_options(std::span<const char* const> words);

// None for 0.
CacheLimits cache_limits(std::uint64_t max_age_s, std::uint64_t max_bytes);

// The arguments after "hora-agent agent". The Error's message is the argument that was not
// understood.
Result<AgentOptions> parse_agent_options(std::span<const char* const> words);

}  // namespace hora::launcher
