// SPDX-License-Identifier: Apache-2.0
// Each message says what the server did and what the user can do. The texts quote whatever comes
// from the server, since it is not trusted yet.
#include "launcher/transports/ssh_refusals.h"

#include "launcher/failures/failure_code.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

Failure refusal(std::string_view code, std::string message, std::string advice = {}) {
  return {std::string(code), std::move(message), std::move(advice)};
}

// Unknown host keys need one of two kinds of advice: host certificates are not supported, so the
// advice to trust on first use would mislead where known_hosts relies on an authority.
Failure unknown_key(const SshHostKey& key, const std::string& name, const SshTarget& target,
                    const std::string& scan) {
  if (!key.authority_in.empty()) {
    return refusal(
        failure::kHostKeyUnknown,
        "its host key is unknown: " + name + "; " + key.authority_in +
            " trusts a certificate authority for it (@cert-authority), and horarun does not "
            "support host certificates",
        "use the system's ssh (--transport command --rsh 'ssh -q'), or add the key as well (" +
            scan + ")");
  }
  const std::string where = target.host_keys.known_hosts_files.empty()
                                ? "known_hosts"
                                : target.host_keys.known_hosts_files.front();
  return refusal(failure::kHostKeyUnknown, "its host key is unknown: " + name,
                 "compare the fingerprint, then add the key (" + scan + " >> " + where +
                     "), or trust it on first use with --accept-new-host-keys");
}

}  // namespace

// sshd closes at once, or says one of these sentences, when MaxStartups or PerSourcePenalties
// apply.
bool means_busy(std::string_view banner) {
  return banner.empty() || banner.find("MaxStartups") != std::string_view::npos ||
         banner.find("Not allowed at this time") != std::string_view::npos;
}

// A proxy's own words explain more than libssh's error, which only sees the end of the stream.
Failure handshake_refusal(const std::string& banner, const std::string& proxy,
                          const std::string& error) {
  if (!proxy.empty()) return refusal(failure::kConnect, "the proxy command ended: " + proxy);
  if (banner.rfind("SSH-", 0) != 0) {
    return refusal(failure::kSshProtocol, "this is not an SSH server: it sent " + quote(banner),
                   "check the port (-p)");
  }
  return refusal(failure::kSshProtocol,
                 "the key exchange with " + quote(banner) + " failed: " + error,
                 "if your own ssh client can connect, use --rsh 'ssh -q'");
}

std::optional<Failure> host_key_refusal(const SshHostKey& key, const SshTarget& target,
                                        const std::string& error) {
  using Trust = SshHostKey::Trust;
  const std::string name = key.type + " " + key.fingerprint;
  const std::string scan = "ssh-keyscan -p " + std::to_string(target.port) + " " + target.address;
  switch (key.trust) {
    case Trust::kKnown:
      return std::nullopt;
    case Trust::kUnreadable:
      return refusal(failure::kSshProtocol, "its host key cannot be read: " + error);
    case Trust::kChanged:
      return refusal(failure::kHostKeyChanged,
                     "its host key is not the one in " + key.known_in + ": it presents " + name,
                     "if the host was reinstalled, remove the old key (ssh-keygen -R " +
                         target.host_keys.known_as + " -f " + key.known_in +
                         "); otherwise another machine may be answering in its place");
    case Trust::kOtherType:
      return refusal(failure::kHostKeyChanged,
                     key.known_in + " has only keys of other types for it; it presents " + name,
                     "add its key of this type if it is genuine (" + scan + ")");
    case Trust::kRevoked:
      return refusal(failure::kHostKeyChanged,
                     "its host key is revoked in " + key.known_in + ": " + name,
                     "another machine may be answering in its place");
    case Trust::kRevocationUnreadable:
      return refusal(failure::kHostKeyChanged,
                     "RevokedHostKeys " + key.known_in +
                         " cannot be read, or is a KRL, which horarun does not support: it cannot "
                         "tell whether " +
                         name + " is revoked",
                     "use a list of public keys there, or the system's ssh: --transport command "
                     "--rsh 'ssh -q'");
    case Trust::kUnknown:
      break;
  }
  // accept-new and "no" both add an unknown key; only an unknown key is ever accepted this way.
  if (target.host_keys.checking != HostKeyChecking::kYes) return std::nullopt;
  return unknown_key(key, name, target, scan);
}

std::string why_program(const LoginAttempt& login, const SshTarget& target) {
  for (const std::string& method : target.keys.program_methods) {
    if (login.methods.find(method) != std::string::npos) return "the login by " + method;
  }
  return {};
}

Failure authentication_refusal(const LoginAttempt& login, const SshTarget& target) {
  std::string tried =
      login.tried.empty() ? "nothing: no key file and no ssh-agent was found" : login.tried;
  const bool half = login.half_authenticated;
  const std::string& methods = login.methods;
  for (const auto& missing : target.keys.missing) tried += ", " + missing + " (missing)";
  std::string what = half ? "a key alone does not let user " + target.user + " in"
                          : "no key was accepted for user " + target.user;
  what += "; tried " + tried;
  const bool takes_keys = methods.empty() || methods.find("publickey") != std::string::npos;
  if (half || !takes_keys) what += "; the server wants " + methods;
  if (!login.closed.empty()) what += "; the server closed the connection: " + login.closed;
  if (half || !takes_keys) {
    return refusal(failure::kSshAuth, std::move(what),
                   "horarun cannot answer prompts: allow public keys for this user in its "
                   "sshd_config (PubkeyAuthentication, AuthenticationMethods)");
  }
  return refusal(failure::kSshAuth, std::move(what),
                 "name the key with -i, load it into ssh-agent, or add its public half to "
                 "~/.ssh/authorized_keys there (sshd ignores that file when it, ~/.ssh or ~ can be "
                 "written by others)");
}

}  // namespace hora::launcher
