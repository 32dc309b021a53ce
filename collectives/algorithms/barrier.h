// SPDX-License-Identifier: Apache-2.0
// Nobody leaves before all have come: by dissemination, after whose round k a rank has heard,
// directly or not, from 2^(k+1) ranks.
#pragma once

#include "collectives/algorithms/messages.h"

namespace hora::collectives {

bool dissemination_barrier(Messages& messages, ErrorText& error);

}  // namespace hora::collectives
