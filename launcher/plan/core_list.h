// SPDX-License-Identifier: Apache-2.0
// Cores as Open MPI's rankfiles name them.  [pure]
//
//   list := item { (";" | ",") item }      item := [socket ":"] cores      cores := N | N-M | "*"
// "0:0-3,5" are cores of socket 0: behind a ',' the socket stays, behind a ';' it does not. Without
// a socket, cores are counted over all sockets. A core stands for all its hardware threads. Both
// are counted from 0 among those that the job may use, socket after socket.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "launcher/plan/binding_plan.h"
#include "launcher/text/spec_location.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct CoreRange {
  std::optional<int> socket;
  int first = 0;
  std::optional<int> last;  // none: all from `first` on
  friend bool operator==(const CoreRange&, const CoreRange&) = default;
};

// `list` begins at byte `at` of the line, at which errors (kUsage) point.
Result<std::vector<CoreRange>> parse_core_list(std::string_view list, const SpecLine& line,
                                               std::size_t at);

// Their CPUs, each once. Errors (kUsage): a socket or a core that is not there.
Result<std::vector<int>> cpus_of(const std::vector<CoreRange>& cores,
                                 const std::vector<CpuPlace>& usable);

}  // namespace hora::launcher
