// SPDX-License-Identifier: Apache-2.0
// A keyed digest (HMAC, RFC 2104): only a holder of the key can compute it.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora {

// Returns 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace hora
