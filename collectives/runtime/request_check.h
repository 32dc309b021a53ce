// SPDX-License-Identifier: Apache-2.0
// Checks a request before it is queued, and describes it in messages.
#pragma once

#include <string>

#include "collectives/runtime/communicator.h"
#include "collectives/runtime/operation.h"
#include "hora/hora.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// The library's report about itself and this process, as JSON.

// `communicator` may be null: before hora_init.
std::string describe(const Communicator* communicator);

// A caller's request becomes an Operation, or the reason why not. Only what this rank can judge by
// itself; what the ranks must agree on is the coordinator's.

// `set_ranks`: the ranks of the request's process set; `rank`: this one's global rank, a member.
Result<OperationPtr> check_request(const hora_request& request,
                                   const std::vector<std::int32_t>& set_ranks, std::int32_t rank);

// Whether check_request() would make of this request what it made `before` of another one, but for
// the memory and the group. False also where it is not worth knowing.
bool repeats(const hora_request& request, const Operation& before);

}  // namespace hora::collectives
