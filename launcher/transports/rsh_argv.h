// SPDX-License-Identifier: Apache-2.0
// The command line of --rsh: which words reach a host.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The argv that runs `line` (sh text) on `host` by the user's command.
//
// Placeholders, anywhere in a word: {host} or {} the host's name, {user} the user (an error when
// the host has none), {target} user@host or host, {command} the line. A command without {command}
// is completed by what it lacks: the target, unless a placeholder named the host, then
//   kubectl, oc        "--" "sh" "-c" LINE      programs that take an argv
//   docker, podman, nerdctl, crictl   "sh" "-c" LINE
//   anything else      LINE                     programs like ssh, that hand it to a shell
Result<std::vector<std::string>> rsh_argv(const std::vector<std::string>& command, const Host& host,
                                          const std::string& line);

// The program that a person knows the command by: srun for "env -u NAME srun ...".
const std::string& rsh_program(const std::vector<std::string>& command);

}  // namespace hora::launcher
