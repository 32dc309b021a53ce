// SPDX-License-Identifier: Apache-2.0
// Lets the processes of an MPI job find each other without a rendezvous.
#pragma once

#include "collectives/launcher_bootstrap.h"

namespace hora::collectives::mpi {

const LauncherBootstrap& launcher_bootstrap();

}  // namespace hora::collectives::mpi
