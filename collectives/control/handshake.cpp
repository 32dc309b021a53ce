// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/handshake.h"

#include "rendezvous/base/hmac.h"

namespace hora::collectives {

std::string handshake_proof(std::string_view token, std::string_view role,
                            std::string_view worker_nonce, std::string_view coordinator_nonce,
                            int rank) {
  // The role keeps a proof from being reflected to the process that computed it.
  return hmac_of_fields(token, {role, worker_nonce, coordinator_nonce, std::to_string(rank)});
}

}  // namespace hora::collectives
