// SPDX-License-Identifier: Apache-2.0
// The orders of an epoch's plan, shared out to the agents that start its new workers.  [pure]
#pragma once

#include <vector>

#include "launcher/elastic/elastic_state.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher::elastic {

// What `incarnation`, which has new workers among `seats`, is sent. `orders` are those of the
// epoch's plan, by host, with its ranks; a host may have several agents, and an agent knows its
// ranks by the numbers of the workers.
HostOrder order_of_incarnation(const std::vector<HostOrder>& orders,
                               const std::vector<ElasticState::Seat>& seats,
                               IncarnationId incarnation, int epoch);

}  // namespace hora::launcher::elastic
