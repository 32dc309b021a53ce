// SPDX-License-Identifier: Apache-2.0
// From facts to findings.  [pure]
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/examination.h"

namespace hora::launcher::doctor {

// Problems of single hosts.
std::vector<Finding> host_findings(const Examination& examination);
// Problems between hosts: routes, speed, packet sizes.
std::vector<Finding> link_findings(const Examination& examination);
// Those (from, to) whose numbers are so bad that they are worth a second look, and of two looks the
// better one.
std::vector<std::pair<int, int>> doubtful_ways(const Examination& examination);
Json better_of(const Json& first, Json second);
// All of that, clocks, and what differs.
std::vector<Finding> set_findings(const Examination& examination);
// Problems that the self-tests found, on each host and across hosts.
std::vector<Finding> selftest_findings(const Examination& examination);
// Every host has reached the others that it was told to try.
bool all_routes_work(const Examination& examination);
// Combinations that are known to be bad (docs/known-problems).
std::vector<Finding> known_problem_findings(const Examination& examination);

// All of them, the same finding of several hosts as one, the worst first.
std::vector<Finding> find_problems(const Examination& examination);

// A member by its path, "python.packages.torch"; null when there is none.
const Json& member(const Json& value, std::string_view path);
// A text there; `otherwise` where it is none. What a host says may be of any kind.
std::string text_in(const Json& value, std::string_view path, std::string otherwise = {});

}  // namespace hora::launcher::doctor
