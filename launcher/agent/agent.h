// SPDX-License-Identifier: Apache-2.0
// One agent: the launcher's hand on one host. docs/reference/agent-protocol.md is its contract.
#pragma once

#include "launcher/agent/agent_options.h"
#include "launcher/agent/shim.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Speaks the protocol on standard input and output until the job is over and the host is clean.
// Blocks until then. Returns the exit code of the process; failures are reported in the stream.
int run_agent(const AgentOptions& options, ShimState& share, os::Fd shim_alive,
              std::unique_ptr<OneCpu> place);

}  // namespace hora::launcher
