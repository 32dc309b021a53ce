// SPDX-License-Identifier: Apache-2.0
// Whether an ssh-agent answers at all.
#pragma once

#include <string>

namespace hora::launcher {

// libssh waits for an agent without a limit: one behind a dead connection would hold up every host
// of its thread, and the end of the program. False only for an agent that takes the connection and
// says nothing; how one that is not there fails, libssh tells. Asks each agent once. Any thread.
bool agent_answers(const std::string& socket_path);

}  // namespace hora::launcher
