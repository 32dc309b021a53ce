// --chaos cut:A/B as an order to the agent of A.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/network/network_choice.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// `ssh_connections`: $SSH_CONNECTION of the agents of both, as far as they have one. Errors: the
// two have every address in common, so that nothing lies between them.
Result<CutOrder> cut_order(const HostNetwork& host, const HostNetwork& peer,
                           const std::vector<std::string>& ssh_connections, int rendezvous_port);

}  // namespace hora::launcher
