// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_access.h"

#include <algorithm>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/text.h"

namespace hora::rendezvous {

namespace {

// True when the field is "Bearer TOKEN" with the job's token.
bool shows_token(std::string_view authorization, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  // The scheme's name is case-insensitive (RFC 9110, 11.1) and not secret; the token is.
  if (!equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return false;
  return equals_in_constant_time(trim(authorization.substr(kScheme.size())), token);
}

}  // namespace

bool AccessPolicy::admits(std::string_view authorization, const IpAddress& peer) const {
  if (!token.empty() && shows_token(authorization, token)) return true;
  // Only for workers that cannot send a token (Horovod's own).
  return std::any_of(allow.begin(), allow.end(),
                     [&](const Cidr& network) { return network.contains(peer); });
}

}  // namespace hora::rendezvous
