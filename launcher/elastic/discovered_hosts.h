// SPDX-License-Identifier: Apache-2.0
// What a discovery script printed, as hosts.  [pure]
// Lines as of a hostfile ("name slots=4", "name:4", "name"), or lists as -H takes them; blank lines
// and # comments are left out. No lines: no hosts at the moment, which is no error.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "rendezvous/base/result.h"

namespace hora::launcher::elastic {

// Each second all of them are compared with those that are known, while heartbeats wait.
inline constexpr std::size_t kMostDiscovered = 4'096;

// Each host once, in the order of the lines, its slots set (`default_slots` where the line has
// none). A line that comes twice counts once; a host with two numbers of slots is an error, and so
// are more than kMostDiscovered hosts. Errors name the line.
Result<std::vector<Host>> parse_discovered_hosts(std::string_view output, int default_slots);

}  // namespace hora::launcher::elastic
