// SPDX-License-Identifier: Apache-2.0
// What `horarun --listen` prints and `horarun --join` reads: where the launcher is, how to know it,
// and the proof that one was asked to come.  [pure]
//
//   url := "hora://" fingerprint token "@" address ("," address)*       address := host ":" port
//
// The fingerprint (64 hexadecimal digits) is the SHA-256 of the launcher's certificate, the token
// has 32 more. Whoever has the text may run the job's ranks and read its environment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct JoinUrl {
  struct Address {
    std::string host;  // a name or a numeric address, without brackets
    std::uint16_t port = 0;
    friend bool operator==(const Address&, const Address&) = default;
  };
  std::string fingerprint;
  std::string token;
  std::vector<Address> addresses;  // to be tried in this order; never empty
  friend bool operator==(const JoinUrl&, const JoinUrl&) = default;
};

inline constexpr std::string_view kJoinScheme = "hora://";

std::string format_join_url(const JoinUrl& url);
// "10.0.0.1:4711", "[fe80::1]:4711"
std::string format_join_address(const JoinUrl::Address& address);
// Blanks around it do not count. Errors (kUsage) never quote the text, which is a secret.
Result<JoinUrl> parse_join_url(std::string_view text);

}  // namespace hora::launcher
