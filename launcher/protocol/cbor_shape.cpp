// SPDX-License-Identifier: Apache-2.0
// Before anything is made of an agent's bytes: a few of them can announce a list of 2^60 parts or
// open a million levels. One pass without allocation finds that out; the loop
// keeps its own stack, as recursion would have the very limit that is to be checked.
#include "launcher/protocol/cbor_shape.h"

#include <array>
#include <cstdint>

#include "launcher/protocol/cbor.h"

namespace hora::launcher {

namespace {

// false, true, null; behind the others stand floating-point numbers, or nothing that we know.
bool is_simple_of_ours(unsigned char initial) { return initial >= 0xf4 && initial <= 0xf6; }

Error fault(const char* what) { return make_error(ErrorCode::kFailed, what); }

}  // namespace

Status check_cbor_shape(std::string_view bytes, std::size_t most_items) {
  std::array<std::uint64_t, kMaxCborDepth> open;  // values still to come at each level
  std::size_t depth = 0;
  std::size_t items = 0;
  do {
    if (bytes.empty()) return fault("it ends early");
    if (++items > most_items) return fault("it has too many parts");
    const auto initial = static_cast<unsigned char>(bytes.front());
    CborItem item;
    if (!take_cbor_head(bytes, item)) return fault("a length is malformed");
    // Counted where it begins, so an empty list or a scalar is complete at once.
    if (depth > 0) --open[depth - 1];
    if (item.kind == CborKind::kBytes || item.kind == CborKind::kText) {
      if (item.number > bytes.size()) return fault("a string is longer than the message");
      bytes.remove_prefix(static_cast<std::size_t>(item.number));
    } else if (item.kind == CborKind::kArray || item.kind == CborKind::kMap) {
      // Each part takes a byte at least.
      if (item.number > bytes.size()) return fault("a list is longer than the message");
      if (depth == kMaxCborDepth) return fault("it is nested too deeply");
      open[depth++] = item.kind == CborKind::kMap ? item.number * 2 : item.number;
    } else if (item.kind == CborKind::kTag ||
               (item.kind == CborKind::kSimple && !is_simple_of_ours(initial))) {
      return fault("it holds a value of a kind that messages do not have");
    }
    // The last part of the innermost list may be the last of several around it.
    while (depth > 0 && open[depth - 1] == 0) --depth;
  } while (depth > 0);
  if (!bytes.empty()) return fault("bytes follow it");
  return Ok{};
}

}  // namespace hora::launcher
