// SPDX-License-Identifier: Apache-2.0
// How two agents of a job prove to each other that they have its key before one sends the other a
// delivery. The key itself does not travel between them.  [pure]
//
//   fetching: kDeliveryMagic nonce id     serving: nonce proof     fetching: proof
//   serving: kDeliveryGo, the delivery's frames, as many bytes as the launcher has said; end of
//   stream. Or kDeliveryLater, end of stream: it serves as many as it can, ask again
//
// The frames may hold what the user keeps private, so they are encrypted and authenticated
// (agent/delivery_seal.h) with a key that follows from the job's and both nonces. What the
// connection proves is that they are from a host of the job; that they are the right ones, the
// SHA-256 proves, which the receiver has from the launcher.
//
// A nonce is kDeliveryNonce random bytes, an id kDeliveryId characters, a proof kDeliveryProof
// bytes. Each side answers the other's nonce. A peer that cannot, or asks for what is not here, is
// disconnected without a word.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hora::launcher {

inline constexpr std::string_view kDeliveryMagic = "HORA-PART-4\n";
inline constexpr std::size_t kDeliveryNonce = 32;
inline constexpr std::size_t kDeliveryId = 64;
inline constexpr std::size_t kDeliveryProof = 32;
inline constexpr std::size_t kDeliveryHello = kDeliveryMagic.size() + kDeliveryNonce + kDeliveryId;

// What a host asks for at a time. More would share its link, and be unpacked no earlier.
inline constexpr std::size_t kMostFetches = 4;
// What a host serves at a time.
inline constexpr std::size_t kMostServed = 16;
inline constexpr char kDeliveryGo = 'g';
inline constexpr char kDeliveryLater = 'l';

enum class DeliveryRole { kFetching, kServing };

struct DeliveryTalk {
  std::string id;
  std::string fetching_nonce;
  std::string serving_nonce;
};
std::string delivery_proof(std::string_view key, DeliveryRole role, const DeliveryTalk& talk);
// What seals the frames; of one connection alone.
std::string delivery_seal_key(std::string_view key, const DeliveryTalk& talk);

}  // namespace hora::launcher
