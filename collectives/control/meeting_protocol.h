// SPDX-License-Identifier: Apache-2.0
// What is said on a control connection before it carries control messages.  [pure]
//
// whoever comes: HELLO version job rank size nonce carries     who opens: CHALLENGE nonce proof
// rank whoever comes: PROOF proof rank_info                         who opens: WELCOME all
// rank_infos Who opens may answer REFUSED text instead and hang up. `carries`: the connection is
// that of a tree node (tree_node.h) and carries the messages of other ranks, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/negotiation/wire.h"

namespace hora::collectives::meeting {

enum MessageKind : std::uint8_t { kHello = 1, kChallenge, kProof, kWelcome, kRefused };

inline constexpr std::uint64_t kProtocolVersion = 3;
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
