// SPDX-License-Identifier: Apache-2.0
// A job that mpirun, srun or mpiexec started without horarun: who this process is and where the
// ranks meet is learnt through the launcher's own library.
#pragma once

#include <string>

#include "collectives/runtime/settings.h"

namespace hora::collectives {

// Whether the environment speaks of several processes started by another launcher, and by which
// variable; empty: it does not.  [pure]
std::string find_other_launcher(const Variables& variables);

// Collective over the processes of the launcher. Fills rank, sizes, rendezvous, token and job id
// into `settings` and answers this host's own address for the others; "" in a world of one. Rank 0
// serves the rendezvous until its process ends or meets again.
Result<std::string> bootstrap_by_launcher(Settings& settings, const std::string& launcher);

}  // namespace hora::collectives
