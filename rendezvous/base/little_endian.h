// SPDX-License-Identifier: Apache-2.0
// Little-endian integers in byte strings, as the wire formats of the launcher, the control channel
// and Horovod's notifications have them.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora {

// The number in at most the first eight of `bytes`.
inline std::uint64_t load_little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size() < 8 ? bytes.size() : 8; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

// The lowest `count` bytes of `value`.
inline void append_little_endian(std::string& out, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// For callers that know that there are four bytes.
inline std::uint32_t load_u32(const char* bytes) {
  return static_cast<std::uint32_t>(load_little_endian({bytes, 4}));
}

inline void append_u32(std::string& out, std::uint32_t value) {
  append_little_endian(out, value, 4);
}

// Takes the number off the front of `bytes`; nothing, and no change, when they are too few.
inline std::optional<std::uint32_t> read_u32(std::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const std::uint32_t value = load_u32(bytes.data());
  bytes.remove_prefix(4);
  return value;
}

}  // namespace hora
