// SPDX-License-Identifier: Apache-2.0
// What simulated ranks do: the command line of the job, which names no program.  [pure]
//   simulated-rank [--for MS] [--output BYTES] [--line BYTES] [--exit RANK:CODE]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::test {

struct RankScript {
  Milliseconds runs_for{0};  // at least; it ends when its output has been taken, too
  std::size_t output_bytes = 0;
  std::size_t line_bytes = 80;  // with the line feed
  int failing_rank = -1;
  int failing_code = 0;
};

Result<RankScript> parse_rank_script(const std::vector<std::string>& argv);

// The lines of `rank` from byte `offset` on, `size` bytes of them: the rank's number and that of
// the line, filled up with dots.
std::string output_of(const RankScript& script, int rank, std::size_t offset, std::size_t size);

}  // namespace hora::test
