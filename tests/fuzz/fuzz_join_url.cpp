// SPDX-License-Identifier: Apache-2.0
// The text for --join: any bytes give addresses that are printed and read back the same, or a
// message without the secret.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/dial/dial_protocol.h"

using namespace hora::launcher;

namespace {

void check(std::string_view text) {
  const auto url = parse_join_url(text);
  if (!url) {
    if (url.error().code != hora::ErrorCode::kUsage || url.error().message.empty()) std::abort();
    return;
  }
  if (url->fingerprint.size() != 64 || url->token.size() != 32 || url->addresses.empty()) {
    std::abort();
  }
  for (const JoinUrl::Address& address : url->addresses) {
    if (address.host.empty() || address.port == 0) std::abort();
  }
  const auto again = parse_join_url(format_join_url(*url));
  if (!again || *again != *url) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  // Past the digits, which cannot be guessed; and with some of them missing.
  const std::string secret = std::string(kJoinScheme) + std::string(96, 'a');
  check(secret + "@" + std::string(text));
  const auto cut = parse_join_url(secret.substr(0, secret.size() - 1) + "@" + std::string(text));
  if (cut || cut.error().message.find(std::string(32, 'a')) != std::string::npos) std::abort();
  return 0;
}
