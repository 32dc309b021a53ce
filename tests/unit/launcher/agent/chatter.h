// SPDX-License-Identifier: Apache-2.0
// A stream of bytes that both ends of a test can make, all values included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hora::test {

class Chatter {
 public:
  explicit Chatter(std::uint32_t seed) : state_(seed * 2654435761u + 1) {}
  void fill(char* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      bytes[i] = static_cast<char>(state_ >> 24);
    }
  }

 private:
  std::uint32_t state_;
};

}  // namespace hora::test
