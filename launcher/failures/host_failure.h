// SPDX-License-Identifier: Apache-2.0
// What keeps a host from running the job (no build for its processor, a C library that is too old),
// and the command that proves or fixes it.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// The command that proves or fixes what is wrong with a host.

// How this job reaches a host: "ssh -p 2222", or the words of --rsh. Empty: the hosts dial horarun,
// which has no way to them.
std::string reach_words(const JobSpec& spec);

// Whether a command of the table runs on the host: "{ssh} {host} 'uptime'".
bool runs_on_host(std::string_view pattern);

// The same for a user on that host: the command alone.
std::string fill_local_command(std::string_view pattern, const Host& host);

// A command from a table with "{ssh}" and "{host}" filled in; options of ssh after "{ssh}" are left
// out when it is another program.
std::string fill_command(std::string_view pattern, const std::string& reach, const Host& host);

// A host whose processor this installation has no build for.

// `machine` is what the host says it is, `there_are` names the machines that have a build.
Failure no_build_for(std::string_view machine, std::string_view there_are);

// Whether a host can load the runtime that this installation ships.

// Why a host with `c_library` (Hello) cannot load a runtime that needs glibc `least_glibc`. Nothing
// when it can, or when one of the two is unknown.
std::optional<Failure> why_runtime_does_not_fit(std::string_view c_library,
                                                const std::string& least_glibc);

}  // namespace hora::launcher
