// SPDX-License-Identifier: Apache-2.0
// Which rank of this host a process belongs to. For reports: what has to end is found without it.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace hora::launcher {

struct RankProcess {
  int rank = -1;
  pid_t pid = -1;  // leads a process group, and maybe a session, of its own
};

// The rank whose group or session the process is in, or the nearest of its ancestors that is in
// one. A process that has left these and has lost its parents belongs to the rank whose number is
// in its environment, if `mark` ("NAME=VALUE") is there, too; empty: the caller knows that the
// process is of this job. -1: of no rank, or gone. The ranks themselves may have ended.
int rank_of_process(pid_t pid, const std::vector<RankProcess>& ranks, std::string_view mark);

}  // namespace hora::launcher
