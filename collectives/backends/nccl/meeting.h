// SPDX-License-Identifier: Apache-2.0
// What the ranks of a process set tell each other before they make NCCL's communicators.
#pragma once

#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/nccl/libraries.h"

namespace hora::collectives::nccl {

// Collective: the first rank decides on the number of streams and makes an id for each. False, with
// the reason: it could make none, the ranks have different versions of NCCL, or some have to share
// a GPU.
bool exchange_ids(const GroupContext& group, const Cuda& driver, const Nccl& library,
                  std::vector<ncclUniqueId>& ids, ErrorText& error);

}  // namespace hora::collectives::nccl
