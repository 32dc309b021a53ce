// SPDX-License-Identifier: Apache-2.0
// Numbers and strings as ssh sends and stores them (RFC 4251).  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

inline std::string ssh_number(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

inline std::string ssh_string(std::string_view text) {
  return ssh_number(static_cast<std::uint32_t>(text.size())).append(text);
}

// Both take what they return off `bytes`; nothing: it is too short.
inline std::optional<std::uint32_t> take_ssh_number(std::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(4);
  return value;
}

inline std::optional<std::string_view> take_ssh_string(std::string_view& bytes) {
  const auto length = take_ssh_number(bytes);
  if (!length || *length > bytes.size()) return std::nullopt;
  const std::string_view text = bytes.substr(0, *length);
  bytes.remove_prefix(*length);
  return text;
}

// The type that a public key begins with: "ssh-ed25519". Empty if it does not begin with one.
inline std::string_view type_of_key(std::string_view key) {
  return take_ssh_string(key).value_or(std::string_view());
}

}  // namespace hora::launcher
