// The messages for an ssh server that refuses us, or that we refuse.
// Messages begin behind the host's name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/transports/ssh_client.h"

namespace hora::launcher {

// A server that closes before it has said "SSH-" has too much to do (MaxStartups and the like).
bool means_busy(std::string_view banner);

// `proxy` are the last words of the proxy command; empty without one. `error` is libssh's.
Failure handshake_refusal(const std::string& banner, const std::string& proxy,
                          const std::string& error);

// Nothing for a key that is known, and for an unknown one that the target allows to be added.
std::optional<Failure> host_key_refusal(const SshClient::HostKey& key, const SshTarget& target,
                                        const std::string& error);

// `tried` and `methods` as by SshClient; `closed` says how the connection ended, if it did.
Failure authentication_refusal(std::string tried, const std::string& methods,
                               const SshTarget& target, const std::string& closed);

}  // namespace hora::launcher
