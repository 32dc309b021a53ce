// SPDX-License-Identifier: Apache-2.0
// Places ranks on this host: their CPUs, their GPUs, a sensible number of threads.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/binding.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct RankPlacement {
  Binding binding;                 // by local rank
  std::vector<std::string> notes;  // for people
};

// Also adds OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES to the order where the user has not set them.
// Errors: the CPUs that the user lists are not to be had here (kUsage), or as many GPUs as each
// rank is to have (kNotFound).
Result<RankPlacement> place_ranks(HostOrder& order, const char* const* machine_environment);

}  // namespace hora::launcher
