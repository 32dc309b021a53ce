// SPDX-License-Identifier: Apache-2.0
// The world of a rank that a launcher started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/runtime/callers_exchange.h"
#include "collectives/runtime/communicator.h"
#include "collectives/runtime/settings.h"
#include "collectives/runtime/started_world.h"

namespace hora::collectives {

// From the environment of a worker to the arguments of Communicator::join().

// `generation`: how often this process has joined before. Rank 0 of each incarnation of the world
// publishes its address under a key of its own, so that no rank meets the previous coordinator.
// `callers`: a world of the program's choice instead of the environment's.
Result<Communicator::Start> start_from_environment(
    std::vector<std::vector<std::int32_t>> process_sets, int generation,
    const std::optional<CallersWorld>& callers = std::nullopt);

// A job that mpirun, srun, torchrun or mpiexec started without horarun: the rank of this process
// and the address of the rendezvous come from the launcher's own library, or from its environment.

// Whether the environment speaks of several processes whose launcher has a library (MPI, PMI), and
// by which variable; empty: it does not.  [pure]
std::string find_other_launcher(const Variables& variables);

// Collective over the processes of the launcher. `launcher`: from find_other_launcher(); where its
// library cannot be used, and without one, the ranks meet by what `world` says. Fills rank, sizes,
// rendezvous, token and job id into `settings` and answers this host's own address for the others;
// "" in a world of one. Rank 0 serves the rendezvous until its process ends or meets again.
Result<std::string> bootstrap_by_launcher(Settings& settings, const std::string& launcher,
                                          const std::optional<StartedWorld>& world);

// The same for a world of processes that the program has chosen.
Result<std::string> bootstrap_by_caller(Settings& settings, const CallersWorld& world);

}  // namespace hora::collectives
