// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/join_url.h"

#include "rendezvous/base/address.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kFingerprintDigits = 64;
constexpr std::size_t kTokenDigits = 32;

Error wrong(const std::string& why) {
  return make_error(ErrorCode::kUsage, "not what horarun --listen printed: " + why);
}

Result<JoinUrl::Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return wrong("expected ADDRESS:PORT behind the '@', found " + quote(text));
  }
  const auto port = parse_port(text.substr(colon + 1));
  if (!port) return wrong("the port of " + quote(text) + " is not one");
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("[]") != std::string_view::npos) {
    return wrong("expected ADDRESS:PORT behind the '@', found " + quote(text));
  }
  return JoinUrl::Address{std::string(host), *port};
}

}  // namespace

std::string format_join_address(const JoinUrl::Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

// Fingerprint and token have fixed lengths, so that nothing has to stand between them.
std::string format_join_url(const JoinUrl& url) {
  std::string text = std::string(kJoinScheme) + url.fingerprint + url.token;
  char separator = '@';
  for (const JoinUrl::Address& address : url.addresses) {
    text += separator + format_join_address(address);
    separator = ',';
  }
  return text;
}

// What is quoted in an error is the part behind the '@', which is no secret.
Result<JoinUrl> parse_join_url(std::string_view text) {
  text = trim(text);
  if (!text.starts_with(kJoinScheme)) {
    return wrong("it does not begin with " + std::string(kJoinScheme));
  }
  text.remove_prefix(kJoinScheme.size());
  const std::size_t at = text.find('@');
  const std::string_view secret = text.substr(0, at);
  if (at == std::string_view::npos || secret.size() != kFingerprintDigits + kTokenDigits ||
      !from_hex(secret)) {
    return wrong("expected " + std::to_string(kFingerprintDigits + kTokenDigits) +
                 " hexadecimal digits and '@' behind " + std::string(kJoinScheme) +
                 "; a part of the text is missing");
  }
  JoinUrl url{std::string(secret.substr(0, kFingerprintDigits)),
              std::string(secret.substr(kFingerprintDigits)),
              {}};
  for (const std::string_view item : split(text.substr(at + 1), ',')) {
    auto address = parse_address(item);
    if (!address) return std::move(address).error();
    url.addresses.push_back(std::move(*address));
  }
  return url;
}

}  // namespace hora::launcher
