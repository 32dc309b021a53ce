// SPDX-License-Identifier: Apache-2.0
// known_hosts files and lists of revoked keys: what libssh does not do with them itself.
// `entry` is a key as known_hosts has it: "NAME TYPE BASE64". Any thread may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Adds `entry` to `file`, made when it is not there, unless the very line is in it by now. One
// writer at a time, other processes included; waits for another one for at most 2 s.
Status add_known_host(const std::string& file, const std::string& entry);

// The first of these files with an @cert-authority line for the host; empty: none.
std::string file_with_authority(const std::vector<std::string>& files, const std::string& host,
                                int port);

// Whether a known_hosts text has the key of `entry` in an @revoked line, for whatever host.
bool marks_as_revoked(std::string_view known_hosts, std::string_view entry);

enum class Revocation { kNotRevoked, kRevoked, kUnreadable };
// Looks the key of `entry` up in the text of a RevokedHostKeys file, a list of public keys.
Revocation look_up_revoked(std::string_view revoked_keys, std::string_view entry);

}  // namespace hora::launcher
