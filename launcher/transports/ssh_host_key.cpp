// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_host_key.h"

#include "launcher/transports/known_hosts.h"
#include "launcher/transports/libssh_types.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

using Trust = SshHostKey::Trust;

// False if libssh has no key to show.
bool read_key(ssh_session session, SshHostKey& result) {
  ssh_key raw = nullptr;
  if (libssh().ssh_get_server_publickey(session, &raw) != SSH_OK) return false;
  const SshKey key(raw);
  result.type = libssh().ssh_key_type_to_char(libssh().ssh_key_type(raw));
  unsigned char* hash = nullptr;
  std::size_t length = 0;
  if (libssh().ssh_get_publickey_hash(raw, SSH_PUBLICKEY_HASH_SHA256, &hash, &length) == SSH_OK) {
    const SshText text(libssh().ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, length));
    if (text) result.fingerprint = text.get();
    libssh().ssh_clean_pubkey_hash(&hash);
  }
  char* entry = nullptr;
  if (libssh().ssh_session_export_known_hosts_entry(session, &entry) == SSH_OK) {
    const SshText text(entry);
    result.entry = std::string(trim(text.get()));
  }
  return true;
}

// True if the key is revoked, or may be: as in ssh, a list that cannot be read admits no host. An
// explicit RevokedHostKeys counts before known_hosts. libssh skips the lines of known_hosts that
// begin with a marker, so @revoked is looked up here.
bool find_revocation(const SshHostKeyPolicy& policy, SshHostKey& result) {
  if (const std::string& file = policy.revoked_keys_file; !file.empty()) {
    const auto text = os::read_file(file);
    const Revocation found = text ? look_up_revoked(*text, result.entry) : Revocation::kUnreadable;
    if (found != Revocation::kNotRevoked) {
      result.trust = found == Revocation::kRevoked ? Trust::kRevoked : Trust::kRevocationUnreadable;
      result.known_in = file;
      return true;
    }
  }
  for (const std::string& file : policy.known_hosts_files) {
    const auto text = os::read_file(file);
    if (!text || !marks_as_revoked(*text, result.entry)) continue;
    result.trust = Trust::kRevoked;
    result.known_in = file;
    return true;
  }
  return false;
}

// The first file that knows this very key settles it. A file that contradicts the key only decides
// when none confirms it. Each file is asked on its own, so that the error can name it.
void look_up_known_hosts(ssh_session session, const SshHostKeyPolicy& policy, SshHostKey& result) {
  (void)libssh().ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
  for (const std::string& file : policy.known_hosts_files) {
    if (libssh().ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, file.c_str()) != SSH_OK) continue;
    const auto found = libssh().ssh_session_is_known_server(session);
    if (found == SSH_KNOWN_HOSTS_OK) {
      result.trust = Trust::kKnown;
      result.known_in = file;
      return;
    }
    if (found == SSH_KNOWN_HOSTS_CHANGED) {
      result.trust = Trust::kChanged;
      result.known_in = file;
    } else if (found == SSH_KNOWN_HOSTS_OTHER && result.trust == Trust::kUnknown) {
      result.trust = Trust::kOtherType;
      result.known_in = file;
    }
  }
}

}  // namespace

// Revocation wins over everything else.
SshHostKey check_host_key(ssh_session_struct* session, const SshTarget& target) {
  SshHostKey result;
  if (!read_key(session, result)) return result;
  result.trust = Trust::kUnknown;
  if (find_revocation(target.host_keys, result)) return result;
  look_up_known_hosts(session, target.host_keys, result);
  // A host that is only known through a certificate authority needs its own advice.
  if (result.trust == Trust::kUnknown) {
    result.authority_in = file_with_authority(target.host_keys.known_hosts_files,
                                              target.host_keys.known_as, target.port);
  }
  return result;
}

}  // namespace hora::launcher
