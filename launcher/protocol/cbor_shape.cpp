// SPDX-License-Identifier: Apache-2.0
// Before the JSON library may build a tree from an agent's bytes: a few of them can announce a list
// of 2^60 parts or open a million levels. One pass without allocation finds that out; the loop
// keeps its own stack, as recursion would have the very limit that is to be checked.
#include "launcher/protocol/cbor_shape.h"

#include <array>
#include <cstdint>

namespace hora::launcher {

namespace {

enum Major { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kTag, kSimple };

Error fault(const char* what) { return make_error(ErrorCode::kFailed, what); }

// The number behind an initial byte: in the byte itself, or in the 1, 2, 4 or 8 that follow.
bool take_argument(std::string_view& bytes, unsigned info, std::uint64_t& value) {
  if (info < 24) {
    value = info;
    return true;
  }
  if (info > 27) return false;  // reserved, or of indefinite length
  const std::size_t size = std::size_t{1} << (info - 24);
  if (bytes.size() < size) return false;
  value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  bytes.remove_prefix(size);
  return true;
}

}  // namespace

Status check_cbor_shape(std::string_view bytes, std::size_t most_items) {
  std::array<std::uint64_t, kMaxCborDepth> open;  // values still to come at each level
  std::size_t depth = 0;
  std::size_t items = 0;
  do {
    if (bytes.empty()) return fault("it ends early");
    if (++items > most_items) return fault("it has too many parts");
    const auto initial = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    const unsigned major = initial >> 5;
    const unsigned info = initial & 31;
    std::uint64_t argument = 0;
    if (!take_argument(bytes, info, argument)) return fault("a length is malformed");
    // Counted where it begins, so an empty list or a scalar is complete at once.
    if (depth > 0) --open[depth - 1];
    if (major == kBytes || major == kText) {
      if (argument > bytes.size()) return fault("a string is longer than the message");
      bytes.remove_prefix(static_cast<std::size_t>(argument));
    } else if (major == kArray || major == kMap) {
      // Each part takes a byte at least.
      if (argument > bytes.size()) return fault("a list is longer than the message");
      if (depth == kMaxCborDepth) return fault("it is nested too deeply");
      open[depth++] = major == kMap ? argument * 2 : argument;
    } else if (major == kTag || (major == kSimple && (info < 20 || info > 22))) {
      return fault("it holds a value of a kind that messages do not have");
    }
    // The last part of the innermost list may be the last of several around it.
    while (depth > 0 && open[depth - 1] == 0) --depth;
  } while (depth > 0);
  if (!bytes.empty()) return fault("bytes follow it");
  return Ok{};
}

}  // namespace hora::launcher
