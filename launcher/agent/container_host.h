// SPDX-License-Identifier: Apache-2.0
// An agent that starts another one, in a container, with its own stream: the outer and the inner
// one. The outer one chooses the program that runs the image, reports why none does, and sees to it
// that no container is left. A stream's end, signals and the end of ranks are the inner one's.
#pragma once

#include <span>

#include "launcher/agent/agent_options.h"

namespace hora::launcher {

// The outer agent: returns its exit code. `words` are the arguments that `options` come from. All
// signals are blocked.
int run_in_container(const AgentOptions& options, std::span<const char* const> words);

// The inner one: reports to the other that it has begun.
void announce_contained();

}  // namespace hora::launcher
