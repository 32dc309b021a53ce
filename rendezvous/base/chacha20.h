// SPDX-License-Identifier: Apache-2.0
// The stream cipher ChaCha20 (RFC 8439). It hides contents and protects nothing from changes: who
// receives them has to check them by a hash.  [pure]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hora {

class ChaCha20 {
 public:
  // `key` has 32 bytes, and is never used for a second stream: the nonce is 0.
  explicit ChaCha20(std::string_view key);

  // The next bytes of the stream, in place; the same call seals and opens.
  void apply(char* bytes, std::size_t count);

 private:
  void next_block();

  std::array<std::uint32_t, 16> state_;
  std::array<std::uint8_t, 64> block_{};
  std::size_t used_ = 64;  // of the block
};

}  // namespace hora
