// SPDX-License-Identifier: Apache-2.0
// The first message of an agent: what its host is and has, its shared libraries, and which of the
// job's parts it lacks.
#pragma once

#include <vector>

#include "launcher/agent/agent_options.h"
#include "launcher/agent/staging.h"
#include "launcher/process/one_cpu.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// The launcher's questions about the shared libraries of this host.

// One for each that `--find` and the conditions of `--parts` name; a few milliseconds if there are
// any.
std::vector<HostLibrary> find_host_libraries(const AgentOptions& options);

// The first message of an agent: the properties of its host, and the job's parts that it lacks.

// Looks at the whole machine, and at `staging` for what it lacks; `place` is left meanwhile, if
// any. Ports and the clock are the caller's.
Hello describe_host(const AgentOptions& options, Staging& staging, OneCpu* place);

}  // namespace hora::launcher
