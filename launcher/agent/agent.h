// One agent: the launcher's hand on one host. docs/reference/agent-protocol.md is its contract.
#pragma once

#include <string>

#include "launcher/agent/shim.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

struct AgentOptions {
  std::string bundle_hash;      // names the bundle in the cache; empty: none is needed
  std::string cache_directory;  // absolute
  std::string local_bundle;     // a bundle to use where it lies; nothing is copied then
  bool probe = false;           // answer probes of other hosts
  bool report_sha = false;      // SHA-256 of the own executable in Hello
  bool cleans_cache = false;    // its rank removes what nobody uses there
  std::string own_sha256;       // known already; else it is computed when it is asked for
  // The launcher's process, where it is on this machine: its end is the stream's, and as long as it
  // is at work it may be silent. 0: it is elsewhere.
  int launcher = 0;
  // Beyond the grace: when the launcher is gone and the agent does nothing, the shim steps in.
  int shim_margin_ms = 10'000;
  // For how long ranks stay stopped for a launcher that was suspended (Ctrl-Z) and may be gone with
  // its machine.
  int suspended_lease_ms = 24 * 3'600'000;
};

// Speaks the protocol on standard input and output until the job is over and the host is clean.
// The result is the process's exit code; what went wrong was told in the stream.
int run_agent(const AgentOptions& options, ShimState& share, os::Fd shim_alive);

}  // namespace hora::launcher
