// SPDX-License-Identifier: Apache-2.0
// Host lists in the forms that several engines use.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"

namespace hora::launcher {

// The value of a variable; kUsage, with its name, when it is not set or empty.
Result<std::string> needed_variable(const EngineInputs& inputs, std::string_view name);

// The file that a variable names. kUsage: the variable is not set, or the file cannot be read.
Result<std::string> needed_file(const EngineInputs& inputs, std::string_view name);

// A host for each word, or one slot more for a host that comes again: "n1 n1 n2" is n1:2,n2:1.
// `origin` names the source in errors. kUsage: there is no word, or one cannot be the name of a
// host.
Result<std::vector<Host>> count_hosts(std::string_view words, std::string_view origin);

// "n1 4 n2 2": n1:4,n2:2.
Result<std::vector<Host>> pair_hosts(std::string_view words, std::string_view origin);

// Where a user's cache is, which the hosts of an allocation share with this machine if they share
// home folders: "/home/me/.cache/hora". Empty: nobody knows.
std::string cache_folder(const EngineInputs& inputs);

// The name of the only host, on which the job's script runs then; empty: there are several.
std::string only_host(const std::vector<Host>& hosts);

// Slots for hosts of an allocation that has changed: a host has what it had, and a new one what the
// least of the others has.
void give_slots(std::vector<Host>& hosts, const std::vector<Host>& at_start);

// Slurm's counts by node, "4,2,1(x2)": 4, 2, 1, 1. kUsage: it is not one, or names more than
// `limit` nodes.
Result<std::vector<int>> expand_counts(std::string_view text, std::string_view origin,
                                       std::size_t limit);

}  // namespace hora::launcher
