// SPDX-License-Identifier: Apache-2.0
// Which of a launcher's messages may come when, and whether an order is one that the agent can rely
// on.  [pure]
#pragma once

#include <optional>
#include <string>

#include "launcher/protocol/launcher_message.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Which of a launcher's messages may come when.
//   parts, folders, probes, a relay --order--> ready --start--> ranks run
// A message about a rank, a job or a connection that has ended is not a violation: frames cross on
// the way.

// How far an agent is.
struct AgentProgress {
  bool has_order = false;
  bool started = false;      // the ranks of the order
  bool has_tree = false;     // a folder of the user's was offered
  bool in_delivery = false;  // the header of one came, and not yet its end
  bool probes = false;       // a probe is not answered yet
  bool relays = false;
};

// The name of the received message, "a second order"; nothing if its turn has come.
std::optional<std::string> out_of_turn(const LauncherMessage& message,
                                       const AgentProgress& progress);

// The end of a job whose agent received that.
Failure protocol_failure(const std::string& what);

// Whether an order is one that the agent can rely on.

// Ranks are distinct and not negative; lease, grace and window are in range. The launcher never
// sends anything else.
Status check_order(const HostOrder& order);

}  // namespace hora::launcher
