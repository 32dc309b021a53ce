// SPDX-License-Identifier: Apache-2.0
// The host key of an ssh server, compared with what this machine knows of the host.
#pragma once

#include <string>

#include "launcher/transports/ssh_target.h"

struct ssh_session_struct;  // libssh's

namespace hora::launcher {

struct SshHostKey {
  enum class Trust {
    kKnown,
    kUnknown,
    kChanged,
    kOtherType,
    kRevoked,
    kRevocationUnreadable,  // RevokedHostKeys names what cannot be read
    kUnreadable
  };
  Trust trust = Trust::kUnreadable;
  std::string type;          // "ssh-ed25519"
  std::string fingerprint;   // "SHA256:..."
  std::string entry;         // the line for known_hosts, without line feed
  std::string known_in;      // the file that decided
  std::string authority_in;  // of an unknown one: the file that trusts an authority for this host
};

// Call after the key exchange, on the session's thread. Reads files; changes the session's
// known_hosts options. kUnreadable: libssh has no key, because there was no key exchange.
SshHostKey check_host_key(ssh_session_struct* session, const SshTarget& target);

}  // namespace hora::launcher
