// SPDX-License-Identifier: Apache-2.0
// The command that proves or fixes what is wrong with a host.  [pure]
#pragma once

#include <string>
#include <string_view>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// How this job reaches a host: "ssh -p 2222", or the words of --rsh. Empty: the hosts dial horarun,
// which has no way to them.
std::string reach_words(const JobSpec& spec);

// Whether a command of the table runs on the host: "{ssh} {host} 'uptime'".
bool runs_on_host(std::string_view pattern);

// The same for whoever is on that host: the command alone.
std::string fill_local_command(std::string_view pattern, const Host& host);

// A command from a table with "{ssh}" and "{host}" filled in; options of ssh behind "{ssh}" are
// left out when it is another program.
std::string fill_command(std::string_view pattern, const std::string& reach, const Host& host);

}  // namespace hora::launcher
