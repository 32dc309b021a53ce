// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/sha256.h"

#include <array>
#include <cstdint>

#include <sha256.h>  // libmd

namespace hora::launcher {

struct Sha256::State {
  SHA2_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256Init(&state_->context); }

Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  SHA256Update(&state_->context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

std::string Sha256::hex() {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> text;
  SHA256End(&state_->context, text.data());
  return text.data();
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

}  // namespace hora::launcher
