// SPDX-License-Identifier: Apache-2.0
// What an agent on this machine would say of it to a job that has no other host. Asking it costs a
// round trip before the ranks can start, and the same look-ups.
#pragma once

#include <optional>

#include "launcher/agent/host_facts.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

struct PresumedHello {
  Hello hello;        // without pid; of the interfaces it has loopback, which such a job uses
  ReservedPort port;  // hello.free_port
};

// Nothing where this machine has no usable loopback interface, or no port.
std::optional<PresumedHello> presume_hello();

}  // namespace hora::launcher
