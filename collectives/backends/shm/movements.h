// SPDX-License-Identifier: Apache-2.0
// Collectives over shared memory that move tensors unchanged. They return false when the job is
// ending.
#pragma once

#include "collectives/backends/shm/rings.h"
#include "collectives/backends/shm/work.h"

namespace hora::collectives::shm {

bool broadcast(Rings& rings, const Work& work);
bool allgather(Rings& rings, const Work& work);
bool alltoall(Rings& rings, const Work& work);

}  // namespace hora::collectives::shm
