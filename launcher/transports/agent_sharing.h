// SPDX-License-Identifier: Apache-2.0
// Which source sends the agent to a host that lacks it: the launcher, or a host that has it.
// [interface]
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/transports/fetch_script.h"

namespace hora::launcher {

// Any thread may call it, and none waits.
class AgentSharing {
 public:
  // Receives the source for the host: the launcher (nothing), the hosts that the offer names, or
  // one that is not known yet (an offer without addresses). The last call counts; none comes after
  // a got() or after the launcher. From any thread; must not block.
  using Answer = std::function<void(std::optional<AgentOffer>)>;

  virtual ~AgentSharing() = default;
  // It lacks the agent for `machine`.
  virtual void want(int host, const std::string& machine, Answer answer) = 0;
  // Its messages about an offer.
  virtual void opened(int host, int number) = 0;
  virtual void got(int host, int number) = 0;
  // Number 0: no source is left for it.
  virtual void missed(int host, int number, const std::string& reason) = 0;
};

}  // namespace hora::launcher
