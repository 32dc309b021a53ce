// SPDX-License-Identifier: Apache-2.0
// A command on a host: how it is quoted for the shell there, which argv of --rsh starts it, and how
// it ended.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// `word` for the user's login shell, which sshd gives our one command line: sh, bash, dash, ksh,
// zsh, csh, tcsh, fish or busybox. They agree on letters and a few signs bare, single quotes around
// most of the rest, and a backslash outside of quotes. None of them can write a line feed, a
// carriage return or NUL in a way that all understand: an error.
Result<std::string> quote_for_any_shell(std::string_view word);

// The argv that runs `line` (sh text) on `host` by the user's command.
//
// Placeholders, anywhere in a word: {host} or {} the host's name, {user} the user (an error when
// the host has none), {target} user@host or host, {command} the line. A command without {command}
// is completed by what it lacks: the target, unless a placeholder named the host, then
//   kubectl, oc, lxc, incus                       "--" "sh" "-c" LINE
//   docker, podman, nerdctl, crictl, crun, runc   "sh" "-c" LINE
//   anything else                                 LINE                for a shell, like ssh
Result<std::vector<std::string>> rsh_argv(const std::vector<std::string>& command, const Host& host,
                                          const std::string& line);

// The program for messages: srun for "env -u NAME srun ...".
std::string rsh_program(const std::vector<std::string>& command);

// How the remote command ended, as far as it is known.
struct RemoteEnd {
  std::optional<int> exit_status;
  std::string signal;      // "SEGV"; empty: none
  std::string link_error;  // the connection broke: why; empty: it did not
};

std::string describe(const RemoteEnd& end);

// The failure class of what an ssh program printed when it could not connect; empty: unknown.
std::string_view class_of_ssh_words(std::string_view printed);
// Whether the account's login shell refuses every command, given what it printed.
bool means_no_shell(const RemoteEnd& end, std::string_view printed);
// The end of what a shell or an agent printed, quoted for an error message.
std::string last_words(std::string_view text);

}  // namespace hora::launcher
