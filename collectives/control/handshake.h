// SPDX-License-Identifier: Apache-2.0
// How two processes prove to each other that they hold the job's token, without sending it: each
// answers the other's random number with HMAC-SHA256(token, role, both numbers, rank).
// [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora::collectives {

// `role` is "coordinator" or "worker". Returns 32 bytes. Thread-safe.
std::string handshake_proof(std::string_view token, std::string_view role,
                            std::string_view worker_nonce, std::string_view coordinator_nonce,
                            int rank);

}  // namespace hora::collectives
