// SPDX-License-Identifier: Apache-2.0
// Single items of CBOR (RFC 8949), and a check of their shape before a reader relies on their
// lengths.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Single items of CBOR (RFC 8949), of the kinds that messages are made of.

enum class CborKind : std::uint8_t {
  kUnsigned,
  kNegative,  // of -1 - number
  kBytes,
  kText,
  kArray,
  kMap,
  kTag,
  kSimple,  // number is 20: false, 21: true, 22: null
};
inline constexpr std::uint64_t kCborFalse = 20;
inline constexpr std::uint64_t kCborTrue = 21;

struct CborItem {
  CborKind kind = CborKind::kSimple;
  std::uint64_t number = 0;  // of an array or a map: how many values or pairs follow
  std::string_view string;   // of kBytes and kText
};

// Takes the initial byte, and the number that it announces. False: malformed, or of indefinite
// length.
bool take_cbor_head(std::string_view& bytes, CborItem& item);

// For bytes that check_cbor_shape() has found sound, up to their end.
CborItem take_cbor_item(std::string_view& bytes);
void skip_cbor_value(std::string_view& bytes);  // with all that it holds

// With the shortest number. The items of an array or a map follow it.
void append_cbor_head(std::string& out, CborKind kind, std::uint64_t number);
void append_cbor_string(std::string& out, CborKind kind, std::string_view string);

// A look at CBOR bytes before a reader that relies on their lengths gets them.

// The deepest nesting and the most items that a message of ours can have, with room to grow.
inline constexpr std::size_t kMaxCborDepth = 16;
inline constexpr std::size_t kMaxCborItems = 1u << 20;

// One whole value of the kinds that messages are made of (integers, byte and text strings, arrays,
// maps, true, false, null; all of definite length), no deeper and of no more items than the limits,
// and nothing after it.
Status check_cbor_shape(std::string_view bytes, std::size_t most_items = kMaxCborItems);

}  // namespace hora::launcher
