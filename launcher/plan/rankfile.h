// SPDX-License-Identifier: Apache-2.0
// The place of every rank, as Open MPI's rankfiles give it.  [pure]
//
//   rank 0=node1 slot=0:0-3      # cores 0-3 of socket 0 of node1; core_list.h has the syntax
//   rank 1=+n1                   // the second host of -H or of the hostfile, without binding
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct RankLine {
  int rank = 0;
  Host host;                    // without slots
  std::optional<int> relative;  // "+n1": 1, and no host
  std::string cores;            // as written; empty: the rank is not bound
  std::size_t number = 0;       // of the line, from 1
};

// By rank, from 0 without a gap. Errors (kUsage) say `path:line:column`.
Result<std::vector<RankLine>> parse_rankfile(std::string_view text, std::string_view path);

// Sets the seats of the job, and its number of ranks if it has none. A job without hosts gets those
// of the file; hosts without slots get as many as the file fills.
// Errors (kUsage): a host that the job does not have, too few slots, another number of ranks.
Status seat_ranks(const std::vector<RankLine>& lines, std::string_view path, JobSpec& job);

}  // namespace hora::launcher
