// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/delivery_proof.h"

#include "rendezvous/base/hmac.h"

namespace hora::launcher {

// The role keeps a proof from being reflected to who made it; the id, from being used for another
// delivery.
std::string delivery_proof(std::string_view key, DeliveryRole role, const DeliveryTalk& talk) {
  return hmac_of_fields(key, {role == DeliveryRole::kFetching ? "fetching" : "serving", talk.id,
                              talk.fetching_nonce, talk.serving_nonce});
}

// Another role than those of the proofs, which travel in clear.
std::string delivery_seal_key(std::string_view key, const DeliveryTalk& talk) {
  return hmac_of_fields(key, {"sealing", talk.id, talk.fetching_nonce, talk.serving_nonce});
}

}  // namespace hora::launcher
