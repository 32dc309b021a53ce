// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/handshake.h"

#include "rendezvous/base/hmac.h"

namespace hora::collectives {

std::string handshake_proof(std::string_view token, std::string_view role,
                            std::string_view worker_nonce, std::string_view coordinator_nonce,
                            int rank) {
  std::string message;
  // Each part carries its length, so that no two sets of parts give the same message: otherwise an
  // attacker could move bytes from one field into the next and keep the proof. The role keeps a
  // proof from being reflected to the process that computed it.
  for (std::string_view part : {role, worker_nonce, coordinator_nonce}) {
    message += std::to_string(part.size());
    message += ':';
    message += part;
  }
  message += std::to_string(rank);
  return hmac_sha256(token, message);
}

}  // namespace hora::collectives
