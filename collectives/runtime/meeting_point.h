// SPDX-License-Identifier: Apache-2.0
// The processes of a world that torchrun, srun or jsrun started learn of each other at a rendezvous
// that rank 0 serves where the others can compute that it is.
#pragma once

#include "collectives/launcher_bootstrap.h"
#include "collectives/runtime/settings.h"
#include "collectives/runtime/started_world.h"

namespace hora::collectives {

// Of the world of this process, which is the same for as long as the process lives. Settings: the
// patience, and the user's own token.
const LauncherBootstrap& meeting_point(const StartedWorld& world, const Settings& settings);

}  // namespace hora::collectives
