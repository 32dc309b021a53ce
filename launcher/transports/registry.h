// SPDX-License-Identifier: Apache-2.0
// The transports that this build has: those of CMakeLists.txt, in its order. [pure] Code outside of
// this folder never names a transport: it takes the name from the job.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/transports/transport.h"

namespace hora::launcher {

// The transports outlive the program.
std::span<const TransportDescriptor* const> transports();

// nullptr: there is none, or --transport cannot name it.
const TransportDescriptor* find_transport(std::string_view name);

// The one that is not remote: for hosts that are this machine.
const TransportDescriptor& local_transport();

// The one that --rsh selects.
const TransportDescriptor& command_transport();

// The table of docs/reference/transports.md.
std::string transport_reference();

}  // namespace hora::launcher
