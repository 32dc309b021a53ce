// SPDX-License-Identifier: Apache-2.0
// What this process's control groups allow, of version 2 or 1 or a mixture, as containers and job
// systems set it.
#pragma once

#include <string>

#include "facts.h"

namespace hora::doctor {

// {"path", "memory_max", "pids_max", "cpus"}; -1, and 0 CPUs: no limit. Everything is read below
// `root`, which is "" but in tests.
Json cgroup_facts(const std::string& root);

}  // namespace hora::doctor
