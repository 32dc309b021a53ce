// SPDX-License-Identifier: Apache-2.0
// HMAC(key, m) = H((key ^ opad) || H((key ^ ipad) || m)), with the key filled up to one block.
#include "rendezvous/base/hmac.h"

#include <cstdint>

#include <sha256.h>

namespace hora {

namespace {

constexpr std::size_t kBlock = SHA256_BLOCK_LENGTH;

// Two parts, so that key block and message need not be copied together.
std::string sha256(std::string_view first, std::string_view second) {
  SHA2_CTX context;
  SHA256Init(&context);
  const auto update = [&](std::string_view bytes) {
    SHA256Update(&context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  };
  update(first);
  update(second);
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256Final(reinterpret_cast<std::uint8_t*>(digest.data()), &context);
  return digest;
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view message) {
  // A key longer than a block is hashed first; a shorter one is padded with zeros.
  std::string block(key.size() > kBlock ? sha256(key, {}) : std::string(key));
  block.resize(kBlock, '\0');
  std::string inner = block;
  std::string outer = block;
  // The two pads of RFC 2104, which make the inner and the outer key differ.
  for (char& byte : inner) byte = static_cast<char>(byte ^ 0x36);
  for (char& byte : outer) byte = static_cast<char>(byte ^ 0x5C);
  return sha256(outer, sha256(inner, message));
}

std::string hmac_of_fields(std::string_view key, std::initializer_list<std::string_view> fields) {
  std::string message;
  for (const std::string_view field : fields) {
    message += std::to_string(field.size());
    message += ':';
    message += field;
  }
  return hmac_sha256(key, message);
}

}  // namespace hora
