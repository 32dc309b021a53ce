// SPDX-License-Identifier: Apache-2.0
// The messages for an ssh server that refuses us, or that we refuse, and the reasons for which the
// ssh program has to do what libssh cannot.
// The messages leave out the host, which is the subject of the failure. Any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/transports/ssh_host_key.h"
#include "launcher/transports/ssh_identities.h"

namespace hora::launcher {

// A server that closes before it has said "SSH-" has too much to do (MaxStartups), or punishes the
// address from which the connection comes (PerSourcePenalties).
bool means_busy(std::string_view banner);
bool may_mean_penalty(std::string_view banner);

// Known before a connection is made: why libssh cannot get into the host, but the ssh program may.
// Empty: libssh may.
std::string why_program(const SshTarget& target, const KnownHost& known,
                        const SshIdentities& identities);
// The same once the server has shown a key that is not trusted, and once it has refused the login.
std::string why_program_knows(const SshTarget& target, const KnownHost& known);
std::string why_program_logs_in(const SshTarget& target, const SshIdentities& identities,
                                std::string_view methods);

// libssh's error says that it has nothing in common with the server; of what: "kex algos". Empty:
// it says something else.
std::string missing_algorithms(std::string_view error);

// `proxy` are the last words of the proxy command; empty without one. `error` is libssh's.
Failure handshake_refusal(const std::string& banner, const std::string& proxy,
                          const std::string& error);

// Nothing for a key that is known, and for one that the target allows to be added or ignored.
std::optional<Failure> host_key_refusal(const SshHostKey& key, const SshTarget& target,
                                        const std::string& error);

// The result of the login: the names of SshAuthentication's functions.
struct LoginAttempt {
  std::string tried;
  bool half_authenticated = false;
  std::string methods;  // empty: the server was gone before it could be asked
  std::string closed;   // how the connection ended; empty: it did not
};
Failure authentication_refusal(const LoginAttempt& login, const SshIdentities& identities,
                               const SshTarget& target);

}  // namespace hora::launcher
