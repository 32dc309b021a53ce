// SPDX-License-Identifier: Apache-2.0
// Which parts of the runtime a job needs, and how two agents prove that they have the job's key
// before one sends the other a delivery.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Which parts of the runtime a job needs, as the launcher passes to every agent on its command
// line.

struct Hello;

// Only hosts that meet all conditions need it.
struct NeededPart {
  std::string hash;
  bool with_gpu = false;            // the host has one
  std::vector<std::string> with{};  // the host has these libraries (sonames)
  std::vector<std::string>
      lacks{};                // the host lacks one of these, or what it needs; empty: no matter
  std::string least_glibc{};  // the host's is as new; empty: no matter
  friend bool operator==(const NeededPart&, const NeededPart&) = default;
};

// "HASH,HASH:gpu,HASH:with=libcuda.so.1:lacks=libmpi.so.40#libpmix.so.2:glibc=2.34"; may be empty.
std::string part_list_text(const std::vector<NeededPart>& parts);
Result<std::vector<NeededPart>> parse_part_list(std::string_view text);

// The libraries that the conditions name, each once.
std::vector<std::string> libraries_in(const std::vector<NeededPart>& parts);
// From the agent's facts about GPUs, libraries and glibc.
bool is_needed(const NeededPart& part, const Hello& host);

// Whether the text may be a part's or a bundle's name: hexadecimal digits, 16 to 128 of them.
bool is_hash(std::string_view text);

// The name of a bundle of these parts on hosts, in any order: the SHA-256 of their sorted hashes.
std::string bundle_name(std::vector<std::string> part_hashes);

// How two agents of a job prove to each other that they have its key before one sends the other a
// delivery. The key itself does not travel between them.
//   fetching: kDeliveryMagic nonce id     serving: nonce proof     fetching: proof
//   serving: kDeliveryGo, the delivery's frames, as many bytes as the launcher has said; end of
//   stream. Or kDeliveryLater, end of stream: it serves as many as it can, ask again
// The frames may hold what the user keeps private, so they are encrypted and authenticated
// (store/peer_server.h) with a key that follows from the job's and both nonces. What the
// connection proves is that they are from a host of the job; that they are the right ones, the
// SHA-256 proves, which the receiver has from the launcher.
// A nonce is kDeliveryNonce random bytes, an id kDeliveryId characters, a proof kDeliveryProof
// bytes. Each side answers the other's nonce. A peer that cannot, or asks for what is not here, is
// disconnected without a word.

inline constexpr std::string_view kDeliveryMagic = "HORA-PART-4\n";
inline constexpr std::size_t kDeliveryNonce = 32;
inline constexpr std::size_t kDeliveryId = 64;
inline constexpr std::size_t kDeliveryProof = 32;
inline constexpr std::size_t kDeliveryHello = kDeliveryMagic.size() + kDeliveryNonce + kDeliveryId;

// The number that a host asks for at a time. More would share its link, and be unpacked no earlier.
inline constexpr std::size_t kMostFetches = 4;
// The number that a host serves at a time.
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
