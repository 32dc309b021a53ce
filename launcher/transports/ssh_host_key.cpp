// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_host_key.h"

#include "launcher/transports/libssh_types.h"
#include "launcher/transports/ssh_wire.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

using Trust = SshHostKey::Trust;

// False if libssh has no key to show.
bool read_key(ssh_session session, SshHostKey& result) {
  ssh_key raw = nullptr;
  if (libssh().ssh_get_server_publickey(session, &raw) != SSH_OK) return false;
  const SshKey owner(raw);
  char* base64 = nullptr;
  if (libssh().ssh_pki_export_pubkey_base64(raw, &base64) != SSH_OK) return false;
  const SshText text(base64);
  result.key = from_base64(text.get()).value_or("");
  result.type = std::string(type_of_key(result.key));
  unsigned char* hash = nullptr;
  std::size_t length = 0;
  if (libssh().ssh_get_publickey_hash(raw, SSH_PUBLICKEY_HASH_SHA256, &hash, &length) == SSH_OK) {
    const SshText print(libssh().ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, length));
    if (print) result.fingerprint = print.get();
    libssh().ssh_clean_pubkey_hash(&hash);
  }
  return !result.type.empty();
}

// As in ssh, a list that cannot be read admits no host.
Trust look_up_revocation(const std::string& file, const std::string& key) {
  const auto text = os::read_file(file);
  switch (text ? look_up_revoked(*text, key) : Revocation::kUnreadable) {
    case Revocation::kNotRevoked:
      return Trust::kKnown;
    case Revocation::kRevoked:
      return Trust::kRevoked;
    case Revocation::kUnreadable:
      break;
  }
  return Trust::kRevocationUnreadable;
}

}  // namespace

// Revocation wins over everything else.
SshHostKey check_host_key(ssh_session_struct* session, const SshTarget& target,
                          const KnownHost& known) {
  SshHostKey result;
  result.known_as = known.name;
  if (!read_key(session, result)) return result;
  if (const std::string& file = target.host_keys.revoked_keys_file; !file.empty()) {
    result.trust = look_up_revocation(file, result.key);
    result.known_in = file;
    if (result.trust != Trust::kKnown) return result;
  }
  // The rules are those of KnownHost; the server's key is compared in its wire format.
  const KnownKey* line = known.line_about(result.key);
  if (line == nullptr) {
    result.trust = Trust::kUnknown;
    result.known_in.clear();
    return result;
  }
  result.known_in = line->file;
  result.line = *line;
  if (line->marker == KnownKey::Marker::kRevoked) {
    result.trust = Trust::kRevoked;
  } else if (line->key == result.key) {
    result.trust = Trust::kKnown;
  } else {
    result.trust = Trust::kChanged;
  }
  return result;
}

}  // namespace hora::launcher
