// SPDX-License-Identifier: Apache-2.0
// What an agent says first: what its host is and has, and what of the job's parts it lacks.
#pragma once

#include "launcher/agent/agent_options.h"
#include "launcher/agent/staging.h"
#include "launcher/process/one_cpu.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// For a launcher that knows this machine itself.
Hello brief_hello();
// For any other. Looks at the whole machine, and at `staging` for what it lacks; `place` is left
// meanwhile, if any. Ports and the clock are the caller's.
Hello full_hello(const AgentOptions& options, Staging& staging, OneCpu* place);

}  // namespace hora::launcher
