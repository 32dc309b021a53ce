// SPDX-License-Identifier: Apache-2.0
// What happens to the hosts of a fleet.
#pragma once

#include <string>
#include <variant>

#include "launcher/protocol/messages.h"
#include "launcher/shipping/part_delivery.h"
#include "launcher/startup/start_board.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

// How far the connection has come, as the transport reports it.
struct StageReached {
  Stage stage;
  std::string detail;
};
// The agent has greeted; the runtime is on the host, or on its way.
struct AgentGreeted {
  bool lacks_runtime = false;  // it is on its way
};
// The missing parts of the runtime have arrived, or will before its order.
struct RuntimeSupplied {
  Supply supply;
};
// The runtime cannot be read on this machine: no host's fault.
struct RuntimeMissing {
  Error error;
};
// The ranks are gone, and so is the agent.
struct AgentLeft {
  Goodbye goodbye;
};
// The stream ended without a goodbye, or the agent was silent for longer than the lease.
struct AgentLost {
  std::string detail;
  Clock::time_point silent_since;
};

template <typename Messages, typename... More>
struct JoinedWith;
template <typename... Messages, typename... More>
struct JoinedWith<std::variant<Messages...>, More...> {
  using type = std::variant<Messages..., More...>;
};

// What an agent says, but for Hello, DeliveryReport, TreeState and Goodbye, which the fleet keeps;
// and what the fleet has seen itself. A Failure is the host's: it was not reached, its agent
// reports a failure, or breaks the protocol.
using FleetEvent = JoinedWith<AgentMessage, StageReached, AgentGreeted, RuntimeSupplied,
                              RuntimeMissing, AgentLeft, AgentLost>::type;

}  // namespace hora::launcher
