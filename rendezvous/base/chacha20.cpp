// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/chacha20.h"

#include <algorithm>
#include <bit>

namespace hora {

namespace {

constexpr std::array<std::uint32_t, 4> kConstants{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
constexpr int kDoubleRounds = 10;

void quarter(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  a += b;
  d = std::rotl(d ^ a, 16);
  c += d;
  b = std::rotl(b ^ c, 12);
  a += b;
  d = std::rotl(d ^ a, 8);
  c += d;
  b = std::rotl(b ^ c, 7);
}

}  // namespace

ChaCha20::ChaCha20(std::string_view key) : state_{} {
  for (std::size_t i = 0; i < kConstants.size(); ++i) state_[i] = kConstants[i];
  for (std::size_t i = 0; i < 32; ++i) {
    state_[4 + i / 4] |= std::uint32_t{static_cast<unsigned char>(key[i])} << (8 * (i % 4));
  }
}

// The counter has 64 bits here, which is the nonce's first word in the RFC: no stream is too long.
void ChaCha20::next_block() {
  std::array<std::uint32_t, 16> x = state_;
  for (int i = 0; i < kDoubleRounds; ++i) {
    quarter(x[0], x[4], x[8], x[12]);
    quarter(x[1], x[5], x[9], x[13]);
    quarter(x[2], x[6], x[10], x[14]);
    quarter(x[3], x[7], x[11], x[15]);
    quarter(x[0], x[5], x[10], x[15]);
    quarter(x[1], x[6], x[11], x[12]);
    quarter(x[2], x[7], x[8], x[13]);
    quarter(x[3], x[4], x[9], x[14]);
  }
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t word = x[i] + state_[i];
    for (std::size_t k = 0; k < 4; ++k) {
      block_[4 * i + k] = static_cast<std::uint8_t>(word >> (8 * k));
    }
  }
  if (++state_[12] == 0) ++state_[13];
  used_ = 0;
}

void ChaCha20::apply(char* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count;) {
    if (used_ == block_.size()) next_block();
    const std::size_t some = std::min(count - i, block_.size() - used_);
    for (std::size_t k = 0; k < some; ++k) {
      bytes[i + k] =
          static_cast<char>(static_cast<unsigned char>(bytes[i + k]) ^ block_[used_ + k]);
    }
    i += some;
    used_ += some;
  }
}

}  // namespace hora
