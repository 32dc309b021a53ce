// How two processes prove to each other that they hold the job's token, without sending it:
// each answers the other's random number with HMAC-SHA256(token, role, both numbers, rank).
// [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora::collectives {

// role: "coordinator" or "worker". 32 bytes.
std::string handshake_proof(std::string_view token, std::string_view role,
                            std::string_view worker_nonce, std::string_view coordinator_nonce,
                            int rank);

}  // namespace hora::collectives
