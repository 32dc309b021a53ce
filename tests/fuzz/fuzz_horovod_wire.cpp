// SPDX-License-Identifier: Apache-2.0
// What a worker of Horovod's leaves as a pickle, as bytes and as base64: a contact or an error; and
// what it answers: a message is believed only with the digest of its key.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/elastic/horovod_wire.h"

namespace {

std::string in_base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = i; k < i + 3; ++k) {
      bits = (bits << 8) | (k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0);
    }
    for (int shift = 18; shift >= 0; shift -= 6) text.push_back(kDigits[(bits >> shift) & 63]);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hora::launcher::elastic;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {std::string(bytes), in_base64(bytes)}) {
    const auto contact = parse_worker_contact(text);
    if (!contact) continue;
    if (contact->key.empty()) std::abort();
    for (const auto& endpoint : contact->endpoints) {
      if (endpoint.port == 0) std::abort();
    }
  }
  (void)read_signed_message("key", bytes);
  return 0;
}
