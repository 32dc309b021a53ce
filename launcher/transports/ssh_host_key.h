// SPDX-License-Identifier: Apache-2.0
// The host key of an ssh server, compared with what this machine knows of the host.
#pragma once

#include <string>

#include "launcher/transports/known_hosts.h"
#include "launcher/transports/ssh_target.h"

struct ssh_session_struct;  // libssh's

namespace hora::launcher {

struct SshHostKey {
  enum class Trust {
    kKnown,
    kUnknown,
    kChanged,  // another key is known, of this type or of another one
    kRevoked,
    kRevocationUnreadable,  // RevokedHostKeys names what cannot be read
    kUnreadable
  };
  Trust trust = Trust::kUnreadable;
  std::string type;         // "ssh-ed25519"
  std::string fingerprint;  // "SHA256:..."
  std::string key;          // in wire format
  std::string known_as;     // the name of the host in known_hosts
  std::string known_in;     // the file that decided
  KnownKey line;            // of a known_hosts file, the line there
};

// Call after the key exchange, on the session's thread. Reads files. kUnreadable: libssh has no
// key, because there was no key exchange.
SshHostKey check_host_key(ssh_session_struct* session, const SshTarget& target,
                          const KnownHost& known);

}  // namespace hora::launcher
