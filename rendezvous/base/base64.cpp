// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/base64.h"

#include <cstdint>

namespace hora {

namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

// Three bytes make four digits; what the last group lacks is marked by '='.
std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < group.size() ? static_cast<std::uint8_t>(group[k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= group.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == '=') continue;
    const std::size_t value = kDigits.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    // Two characters give the first byte, the third and fourth one more each; the spare low bits
    // are dropped.
    if (++count % 4 != 1) {
      const int spare = count % 4 == 2 ? 4 : count % 4 == 3 ? 2 : 0;
      bytes.push_back(static_cast<char>((bits >> spare) & 0xFF));
    }
    bits &= 0xFFF;
  }
  return bytes;
}

}  // namespace hora
