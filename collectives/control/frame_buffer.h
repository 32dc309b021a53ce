// SPDX-License-Identifier: Apache-2.0
// Cuts a byte stream into messages: a length of four bytes, little-endian, then the message.
// [pure]
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/little_endian.h"

namespace hora::collectives {

inline constexpr std::uint32_t kLargestControlMessage = 256u << 20;

inline void append_frame(std::string& out, std::string_view message) {
  append_u32(out, static_cast<std::uint32_t>(message.size()));
  out.append(message);
}

class FrameBuffer {
 public:
  void append(std::string_view bytes) {
    if (start_ == bytes_.size()) {
      bytes_.clear();
      start_ = 0;
    }
    bytes_.append(bytes);
  }

  // Returns the next complete message. `largest` bounds how much memory an unauthenticated peer can
  // make this process keep; a longer message breaks the buffer for good.
  std::optional<std::string> next(std::uint32_t largest = kLargestControlMessage) {
    if (broken_ || bytes_.size() - start_ < 4) return std::nullopt;
    const std::uint32_t length = load_u32(bytes_.data() + start_);
    if (length > largest) {
      broken_ = true;
      return std::nullopt;
    }
    if (bytes_.size() - start_ - 4 < length) return std::nullopt;
    std::string message = bytes_.substr(start_ + 4, length);
    start_ += 4 + length;
    // Move the rest to the front only once in a while, so that small messages cost no copy each.
    if (start_ > (1u << 20)) {
      bytes_.erase(0, start_);
      start_ = 0;
    }
    return message;
  }

  bool broken() const { return broken_; }

 private:
  std::string bytes_;
  std::size_t start_ = 0;
  bool broken_ = false;
};

}  // namespace hora::collectives
