// SPDX-License-Identifier: Apache-2.0
// The messages for an ssh server that refuses us, or that we refuse.
// The messages leave out the host, which is the subject of the failure. Any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/transports/ssh_host_key.h"

namespace hora::launcher {

// A server that closes before it has said "SSH-" has too much to do (MaxStartups and the like).
bool means_busy(std::string_view banner);

// `proxy` are the last words of the proxy command; empty without one. `error` is libssh's.
Failure handshake_refusal(const std::string& banner, const std::string& proxy,
                          const std::string& error);

// Nothing for a key that is known, and for an unknown one that the target allows to be added.
std::optional<Failure> host_key_refusal(const SshHostKey& key, const SshTarget& target,
                                        const std::string& error);

// What the login led to: the names of SshAuthentication's functions.
struct LoginAttempt {
  std::string tried;
  bool half_authenticated = false;
  std::string methods;  // empty: the server was gone before it could be asked
  std::string closed;   // how the connection ended; empty: it did not
};
Failure authentication_refusal(const LoginAttempt& login, const SshTarget& target);
// A method that the server offers, the configuration allows and only the ssh program has.
std::string why_program(const LoginAttempt& login, const SshTarget& target);

}  // namespace hora::launcher
