// SPDX-License-Identifier: Apache-2.0
// Bytes in, the same bytes out, without moving them each time.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hora::launcher {

class ByteQueue {
 public:
  void append(std::string_view bytes) {
    if (position_ == bytes_.size()) {
      bytes_.clear();
      position_ = 0;
    } else if (position_ >= kWorthMoving && position_ >= bytes_.size() / 2) {
      bytes_.erase(0, position_);
      position_ = 0;
    }
    bytes_.append(bytes);
  }
  std::string_view front() const { return std::string_view(bytes_).substr(position_); }
  void pop(std::size_t count) { position_ += count; }
  std::size_t size() const { return bytes_.size() - position_; }
  bool empty() const { return size() == 0; }
  void clear() {
    bytes_.clear();
    position_ = 0;
  }

 private:
  static constexpr std::size_t kWorthMoving = 64 * 1024;
  std::string bytes_;
  std::size_t position_ = 0;
};

}  // namespace hora::launcher
