// SPDX-License-Identifier: Apache-2.0
// A keyed digest (HMAC, RFC 2104): only a holder of the key can compute it.  [pure]
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace hora {

// Returns 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);
// Returns 20 bytes. Only for what OpenSSH hashes so: the host names of known_hosts.
std::string hmac_sha1(std::string_view key, std::string_view message);

// The same for a list. Each field counts with its length, so that no two lists give the same
// message: otherwise an attacker could move bytes from one field into the next and keep the proof.
std::string hmac_of_fields(std::string_view key, std::initializer_list<std::string_view> fields);

}  // namespace hora
