// SPDX-License-Identifier: Apache-2.0
// Resolves host names to addresses. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::net {

// The addresses of `host` (a name, or a numeric address with or without brackets), in the system's
// order of preference, each once. Blocks as long as the system's resolver does. An unknown name is
// kNotFound; a resolver that cannot answer now is kUnavailable.
Result<std::vector<Endpoint>> resolve_host(const std::string& host, std::uint16_t port);

// Resolves and connects to the first address that answers.
Result<os::Fd> connect_host(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace hora::net
