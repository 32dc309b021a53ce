// SPDX-License-Identifier: Apache-2.0
// This host's own address, as the other hosts can use it.
#pragma once

#include <string>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// Of the interface of this name; kUsage when there is none.
Result<std::string> address_of_interface(const std::string& name);
// The one from which the kernel would send to `there`. Sends nothing.
Result<std::string> own_address_towards(const Endpoint& there);

}  // namespace hora::collectives
