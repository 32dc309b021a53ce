// SPDX-License-Identifier: Apache-2.0
// HMAC(key, m) = H((key ^ opad) || H((key ^ ipad) || m)), with the key filled up to one block.
#include "rendezvous/base/hmac.h"

#include <cstdint>

#include <sha1.h>
#include <sha256.h>

namespace hora {

namespace {

// Both have blocks of this size.
constexpr std::size_t kBlock = SHA256_BLOCK_LENGTH;
static_assert(kBlock == SHA1_BLOCK_LENGTH);

using Bytes = const std::uint8_t*;

// Two parts, so that key block and message need not be copied together.
std::string sha256(std::string_view first, std::string_view second) {
  SHA2_CTX context;
  SHA256Init(&context);
  for (const std::string_view part : {first, second}) {
    SHA256Update(&context, reinterpret_cast<Bytes>(part.data()), part.size());
  }
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256Final(reinterpret_cast<std::uint8_t*>(digest.data()), &context);
  return digest;
}

std::string sha1(std::string_view first, std::string_view second) {
  SHA1_CTX context;
  SHA1Init(&context);
  for (const std::string_view part : {first, second}) {
    SHA1Update(&context, reinterpret_cast<Bytes>(part.data()), part.size());
  }
  std::string digest(SHA1_DIGEST_LENGTH, '\0');
  SHA1Final(reinterpret_cast<std::uint8_t*>(digest.data()), &context);
  return digest;
}

template <typename Hash>
std::string hmac(Hash hash, std::string_view key, std::string_view message) {
  // A key longer than a block is hashed first; a shorter one is padded with zeros.
  std::string block(key.size() > kBlock ? hash(key, {}) : std::string(key));
  block.resize(kBlock, '\0');
  std::string inner = block;
  std::string outer = block;
  // The two pads of RFC 2104, which make the inner and the outer key differ.
  for (char& byte : inner) byte = static_cast<char>(byte ^ 0x36);
  for (char& byte : outer) byte = static_cast<char>(byte ^ 0x5C);
  return hash(outer, hash(inner, message));
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view message) {
  return hmac(sha256, key, message);
}

std::string hmac_sha1(std::string_view key, std::string_view message) {
  return hmac(sha1, key, message);
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
