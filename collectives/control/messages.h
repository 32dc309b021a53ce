// SPDX-License-Identifier: Apache-2.0
// The messages of the control connections.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/negotiation/wire.h"

namespace hora::collectives {

// The first byte of every control message after the handshake.

enum class ControlMessage : std::uint8_t {
  // worker to coordinator
  kRequests = 16,  // a list of requests
  kExchange = 17,  // scope, number, parts: this rank's share of an exchange (oob_allgather.h)
  kBroken = 18,    // text: this rank's data plane failed; the world is unusable
  kFinished = 19,  // this rank has done everything up to the shutdown response
  kPosted = 20,    // turn: this rank has posted in the fast path and waits for the others
  kFailed = 21,    // text: as kBroken, but this rank is the origin of the failure
  // coordinator to worker
  kResponses = 32,       // a list of responses
  kExchangeResult = 33,  // scope, number, rank 0's clock, parts by set index
  kAbort = 34,           // text: the world has ended
  kClose = 35,           // all ranks are finished: connections may be closed
  kInFull = 36,          // set, number: rank 0 has evicted that cache entry; send it in full
  kCall = 37,            // turn: a rank waits in the fast path; post there
  kLost = 38,            // rank, text: that rank is gone, by which rank 0 was reached (tree_node.h)
};

// True for the messages after which the world cannot continue.
inline bool ends_the_world(ControlMessage kind) {
  return kind == ControlMessage::kBroken || kind == ControlMessage::kFailed ||
         kind == ControlMessage::kAbort || kind == ControlMessage::kLost;
}

inline std::string control_message(ControlMessage kind, std::string_view payload = {}) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += payload;
  return bytes;
}

inline ControlMessage kind_of(std::string_view bytes) {
  return bytes.empty() ? ControlMessage{} : static_cast<ControlMessage>(bytes[0]);
}

}  // namespace hora::collectives

namespace hora::collectives::meeting {

// What is said on a control connection before it carries control messages.
// who connects: HELLO version job rank size nonce carries     who opens: CHALLENGE nonce proof
// rank who connects: PROOF proof rank_info                          who opens: WELCOME all
// rank_infos Who opens may answer REFUSED text instead and hang up. `carries`: the connection is
// that of a tree node (tree_node.h) and carries the messages of other ranks, too.

enum MessageKind : std::uint8_t { kHello = 1, kChallenge, kProof, kWelcome, kRefused };

inline constexpr std::uint64_t kProtocolVersion = 5;
// A port scanner or an HTTP client fails here, before any memory is spent on it.
inline constexpr std::string_view kMagic = "hora control";
inline constexpr std::size_t kNonceBytes = 16;

inline std::string refusal(std::string_view text) {
  WireWriter out;
  out.u8(kRefused);
  out.text(text);
  return out.take();
}

}  // namespace hora::collectives::meeting
