// SPDX-License-Identifier: Apache-2.0
// How two agents of a job prove to each other that they have its key before one sends the other a
// delivery. The key itself does not travel between them.  [pure]
//
//   fetching: kDeliveryMagic nonce id     serving: nonce proof     fetching: proof
//   serving: the delivery's frames, as many bytes as the launcher has said; end of stream
//
// A nonce is kDeliveryNonce random bytes, an id kDeliveryId characters, a proof kDeliveryProof
// bytes. Each side answers the other's nonce. A peer that cannot, or asks for what is not here, is
// disconnected without a word.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hora::launcher {

inline constexpr std::string_view kDeliveryMagic = "HORA-PART-1\n";
inline constexpr std::size_t kDeliveryNonce = 32;
inline constexpr std::size_t kDeliveryId = 64;
inline constexpr std::size_t kDeliveryProof = 32;
inline constexpr std::size_t kDeliveryHello = kDeliveryMagic.size() + kDeliveryNonce + kDeliveryId;

enum class DeliveryRole { kFetching, kServing };

struct DeliveryTalk {
  std::string id;
  std::string fetching_nonce;
  std::string serving_nonce;
};
std::string delivery_proof(std::string_view key, DeliveryRole role, const DeliveryTalk& talk);

}  // namespace hora::launcher
