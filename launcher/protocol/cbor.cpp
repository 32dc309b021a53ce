// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/cbor.h"

#include <array>
#include <cstdint>

namespace hora::launcher {

namespace {

constexpr unsigned kOneByte = 24;  // up to 23 the initial byte has the number itself
constexpr unsigned kEightBytes = 27;

}  // namespace

bool take_cbor_head(std::string_view& bytes, CborItem& item) {
  if (bytes.empty()) return false;
  const auto initial = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  item.kind = static_cast<CborKind>(initial >> 5);
  const unsigned info = initial & 31;
  item.number = info;
  if (info < kOneByte) return true;
  if (info > kEightBytes) return false;  // reserved, or of indefinite length
  const std::size_t size = std::size_t{1} << (info - kOneByte);
  if (bytes.size() < size) return false;
  item.number = 0;
  for (std::size_t i = 0; i < size; ++i) {
    item.number = item.number << 8 | static_cast<unsigned char>(bytes[i]);
  }
  bytes.remove_prefix(size);
  return true;
}

CborItem take_cbor_item(std::string_view& bytes) {
  CborItem item;
  if (!take_cbor_head(bytes, item)) return {};
  if (item.kind == CborKind::kBytes || item.kind == CborKind::kText) {
    item.string = bytes.substr(0, item.number);
    bytes.remove_prefix(item.string.size());
  }
  return item;
}

// Without recursion: as deep as the bytes say.
void skip_cbor_value(std::string_view& bytes) {
  for (std::uint64_t left = 1; left > 0 && !bytes.empty(); --left) {
    const CborItem item = take_cbor_item(bytes);
    if (item.kind == CborKind::kArray) left += item.number;
    if (item.kind == CborKind::kMap) left += 2 * item.number;
  }
}

void append_cbor_head(std::string& out, CborKind kind, std::uint64_t number) {
  const unsigned major = static_cast<unsigned>(kind) << 5;
  if (number < kOneByte) {
    out.push_back(static_cast<char>(major | number));
    return;
  }
  unsigned info = kOneByte;
  while (info < kEightBytes && number >> (8u << (info - kOneByte)) != 0) ++info;
  out.push_back(static_cast<char>(major | info));
  for (unsigned shift = 8u << (info - kOneByte); shift > 0; shift -= 8) {
    out.push_back(static_cast<char>(number >> (shift - 8)));
  }
}

void append_cbor_string(std::string& out, CborKind kind, std::string_view string) {
  append_cbor_head(out, kind, string.size());
  out.append(string);
}

// Before anything is made of an agent's bytes: a few of them can announce a list of 2^60 parts or
// open a million levels. One pass without allocation finds that out; the loop
// keeps its own stack, as recursion would have the very limit that is to be checked.

namespace {

// false, true, null; the others stand for floating-point numbers, or nothing that we know.
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
