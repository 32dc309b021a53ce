// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/chacha20.h"

#include <string>

#include "rendezvous/base/hex.h"
#include "tests/support/catch.h"

using namespace hora;

namespace {

std::string stream_of(const std::string& key, std::size_t size) {
  std::string bytes(size, '\0');
  ChaCha20(key).apply(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("chacha20: the key streams of RFC 8439, appendix A.1") {
  const std::string zero(32, '\0');
  CHECK(to_hex(stream_of(zero, 128)) ==
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f");
  std::string ff(32, '\0');
  ff[1] = '\xff';
  // The third block of its key.
  CHECK(to_hex(stream_of(ff, 192).substr(128)) ==
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096");
}

TEST_CASE("chacha20: pieces of any size give the same stream, and the same call opens it") {
  const std::string key = "0123456789abcdef0123456789abcdef";
  const std::string whole = stream_of(key, 1'000);
  for (const std::size_t step : {1u, 7u, 63u, 64u, 65u, 999u}) {
    std::string bytes(whole.size(), '\0');
    ChaCha20 cipher(key);
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      cipher.apply(bytes.data() + at, std::min(step, bytes.size() - at));
    }
    CHECK(bytes == whole);
  }
  std::string text = "what the user keeps private";
  ChaCha20(key).apply(text.data(), text.size());
  CHECK(text != "what the user keeps private");
  ChaCha20(key).apply(text.data(), text.size());
  CHECK(text == "what the user keeps private");
}
