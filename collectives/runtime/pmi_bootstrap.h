// SPDX-License-Identifier: Apache-2.0
// The processes of MPICH's launchers learn of each other by PMI-1, without any MPI library.
#pragma once

#include "collectives/launcher_bootstrap.h"

namespace hora::collectives {

const LauncherBootstrap& pmi_launcher_bootstrap();

}  // namespace hora::collectives
