// SPDX-License-Identifier: Apache-2.0
// Slurm: its allocation, and how srun starts agents inside of one.  [pure]
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine.h"

namespace hora::launcher::slurm {

// How srun starts agents inside of a Slurm job.

// The GPUs that a job was given on its nodes. Slurm up to 23.02 gives a step all of them only where
// it asks for them, if the job was asked for them as a sum or per task.
struct Gpus {
  std::vector<Host> hosts;  // of the job
  std::vector<int> counts;  // by host; empty: a step gets them without asking
};

// The command that starts an agent on one host, and the one that starts them on all.
std::vector<std::string> starter(const EngineInputs& inputs, const std::vector<std::string>& args,
                                 const Gpus& gpus);
// The same for a heterogeneous job; `nodes` of each of its components.
std::vector<std::string> starter_by_component(const EngineInputs& inputs,
                                              const std::vector<std::string>& args,
                                              const std::vector<std::vector<std::string>>& nodes);
EngineStep step(const EngineInputs& inputs, const std::vector<std::string>& args, const Gpus& gpus);

}  // namespace hora::launcher::slurm
