// SPDX-License-Identifier: Apache-2.0
// The messages for an ssh server that refuses us, that we refuse, or that stays silent beyond a
// limit, and the reasons for which the ssh program has to do what libssh cannot.
// The messages leave out the host, which is the subject of the failure. Any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/transports/ssh_client.h"

namespace hora::launcher {

// A server that closes before it has sent "SSH-" is too busy (MaxStartups), or refuses the address
// of this machine for a while (PerSourcePenalties).
bool means_busy(std::string_view banner);
bool may_mean_penalty(std::string_view banner);

// Why the ssh program may get into the host and libssh cannot, as far as this is known before a
// connection is made. Empty: libssh may.
std::string why_program(const SshTarget& target, const KnownHost& known,
                        const SshIdentities& identities);
// The same once the server has shown a key that is not trusted, and once it has refused the login.
std::string why_program_knows(const SshTarget& target, const KnownHost& known);
std::string why_program_logs_in(const SshTarget& target, const SshIdentities& identities,
                                std::string_view methods);

// Of what libssh has nothing in common with the server, by libssh's error: "kex algos". Empty: it
// is another error.
std::string missing_algorithms(std::string_view error);

// `proxy`: the last output of the proxy command; empty without one. `error` is libssh's.
Failure handshake_refusal(const std::string& banner, const std::string& proxy,
                          const std::string& error);

// Nothing for a key that is known, and for one that the target allows to be added or ignored.
std::optional<Failure> host_key_refusal(const SshHostKey& key, const SshTarget& target,
                                        const std::string& error);

Failure authentication_refusal(const SshLogin& login, const SshIdentities& identities,
                               const SshTarget& target);

// Silence beyond a limit, by what was to be done. `waited` is the limit as text: "10 s".
Failure name_server_timeout(const std::string& name);
// `addresses`: those that were tried.
Failure connect_timeout(const std::string& addresses, const std::string& waited);
Failure banner_timeout(const std::string& waited);
Failure key_exchange_timeout(const std::string& waited, const std::string& address);
Failure login_timeout(const std::string& waited);
Failure shell_timeout();
Failure queue_timeout();

// It was refused that many times. `words`: the last output of the server or of the proxy command. A
// proxy that keeps ending without a word looks like a busy server: both give an empty banner.
Failure busy_refusal(int refusals, const std::string& words, bool by_proxy);

}  // namespace hora::launcher
