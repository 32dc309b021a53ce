// SPDX-License-Identifier: Apache-2.0
// Each message says what the server did and what the user can do. The texts quote what comes from
// the server, since it is not trusted yet.
#include "launcher/transports/ssh_failures.h"

#include <algorithm>

#include "launcher/failures/failure_code.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

Failure refusal(std::string_view code, std::string message, std::string advice = {}) {
  return {std::string(code), std::move(message), std::move(advice)};
}

// In a list with commas, with or without blanks after them.
bool has_name(std::string_view list, std::string_view name) {
  const auto names = split(list, ',');
  return std::any_of(names.begin(), names.end(),
                     [name](std::string_view each) { return trim(each) == name; });
}

// The server's own sentence in libssh's error: "Received SSH_MSG_DISCONNECT: 2:Too many ..."
std::string last_sentence(const std::string& error) {
  constexpr std::string_view kBegin = "Received SSH_MSG_DISCONNECT: ";
  if (!error.starts_with(kBegin)) return {};
  const std::size_t colon = error.find(':', kBegin.size());
  return colon == std::string::npos ? "" : error.substr(colon + 1);
}

// How the user adds the server's key, once it has been compared: a command that works as it stands,
// and nothing where none does (a server that only a proxy reaches).
std::string command_to_add(const SshTarget& target) {
  const SshHostKeyPolicy& policy = target.host_keys;
  if (!target.route.proxy.empty() || policy.user_file_count == 0) return {};
  return "ssh-keyscan -p " + std::to_string(target.port) + " " + target.address +
         (policy.is_alias ? " | sed " + quote_shell_words({"s/^[^ ]*/" + policy.known_as + "/"})
                          : "") +
         " >> " + quote_shell_words({policy.known_hosts_files.front()});
}

// ssh-keygen -R would remove the line for the other hosts, too.
std::string command_to_remove(const SshHostKey& key) {
  const std::string line = "line " + std::to_string(key.line.number) + " of " + key.line.file;
  if (key.line.is_for_others) return "edit " + line + ", which is for other hosts, too";
  return "remove " + line + " (ssh-keygen -R " + quote_shell_words({key.known_as}) + " -f " +
         quote_shell_words({key.line.file}) + ")";
}

Failure changed_key(const SshHostKey& key, const SshTarget& target, const std::string& name) {
  const std::string where = key.line.file + ":" + std::to_string(key.line.number);
  const std::string otherwise = "; otherwise another machine may be answering instead of it";
  if (key.line.type == key.type) {
    return refusal(failure::kHostKeyChanged,
                   "its host key is not the one in " + where + ": it presents " + name,
                   "if the host was reinstalled, " + command_to_remove(key) + otherwise);
  }
  const std::string add = command_to_add(target);
  return refusal(failure::kHostKeyChanged,
                 where + " has a key of type " + key.line.type +
                     " for it, and none of the type that it presents: " + name,
                 "if this key is genuine, " +
                     (add.empty() ? command_to_remove(key) : "add it (" + add + ")") + otherwise);
}

// Fingerprints are compared by people, so the advice begins with that.
Failure unknown_key(const SshTarget& target, const std::string& name) {
  const std::string add = command_to_add(target);
  return refusal(failure::kHostKeyUnknown, "its host key is unknown: " + name,
                 add.empty()
                     ? "compare the fingerprint, then connect once with --accept-new-host-keys"
                     : "compare the fingerprint, then add the key (" + add +
                           "), or trust it on first use with --accept-new-host-keys");
}

}  // namespace

// sshd closes at once, or sends one of these sentences. From 9.8 on it sends the second one for
// MaxStartups, too.
bool means_busy(std::string_view banner) {
  return banner.empty() || banner.find("MaxStartups") != std::string_view::npos ||
         may_mean_penalty(banner);
}

bool may_mean_penalty(std::string_view banner) {
  return banner.find("Not allowed at this time") != std::string_view::npos;
}

// libssh verifies no certificates of hosts. Of the types that it lacks, ssh has those that its
// HostKeyAlgorithms name.
std::string why_program_knows(const SshTarget& target, const KnownHost& known) {
  if (const KnownKey* authority = known.authority()) {
    return authority->file + " trusts a certificate authority for it (@cert-authority)";
  }
  if (const KnownKey* foreign = known.foreign_key(target.algorithms.host_keys)) {
    return foreign->file + " has a key of type " + foreign->type + " for it";
  }
  return {};
}

std::string why_program_logs_in(const SshTarget& target, const SshIdentities& identities,
                                std::string_view methods) {
  for (const std::string& method : target.keys.program_methods) {
    if (has_name(methods, method)) return "the server offers " + method;
  }
  for (const ForeignIdentity& each : identities.foreign) {
    if (has_name(target.algorithms.public_keys, each.type)) {
      return "the key " + each.name + " is of type " + each.type;
    }
  }
  return {};
}

// libssh is tried first where it may do, since it is faster: a host may be known by several keys,
// and a user may log in with several.
std::string why_program(const SshTarget& target, const KnownHost& known,
                        const SshIdentities& identities) {
  if (!known.has_libssh_key()) {
    if (std::string why = why_program_knows(target, known); !why.empty()) return why;
  }
  return identities.usable.empty() ? why_program_logs_in(target, identities, "") : std::string();
}

// "kex error : no match for method kex algos: server [...], client [...]"
std::string missing_algorithms(std::string_view error) {
  constexpr std::string_view kBegin = "no match for method ";
  const std::size_t begin = error.find(kBegin);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = error.substr(begin + kBegin.size());
  return std::string(rest.substr(0, rest.find(':')));
}

// A proxy's own message explains more than libssh's error, which only sees the end of the stream.
Failure handshake_refusal(const std::string& banner, const std::string& proxy,
                          const std::string& error) {
  if (!proxy.empty()) return refusal(failure::kConnect, "the proxy command ended: " + proxy);
  if (banner.rfind("SSH-", 0) != 0) {
    return refusal(failure::kSshProtocol, "this is not an SSH server: it sent " + quote(banner),
                   "check the port (-p)");
  }
  return refusal(failure::kSshProtocol,
                 "the key exchange with " + quote(banner) + " failed: " + error,
                 "if your own ssh client can connect, use --rsh ssh");
}

std::optional<Failure> host_key_refusal(const SshHostKey& key, const SshTarget& target,
                                        const std::string& error) {
  using Trust = SshHostKey::Trust;
  const std::string name = key.type + " " + key.fingerprint;
  const auto& policy = target.host_keys;
  switch (key.trust) {
    case Trust::kKnown:
      return std::nullopt;
    case Trust::kUnreadable:
      return refusal(failure::kSshProtocol, "its host key cannot be read: " + error);
    case Trust::kChanged:
      if (policy.checking == HostKeyChecking::kNo) return std::nullopt;
      return changed_key(key, target, name);
    case Trust::kRevoked:
      return refusal(failure::kHostKeyChanged,
                     "its host key is revoked in " + key.line.file + ": " + name,
                     "another machine may be answering instead of it");
    case Trust::kUnknown:
      break;
  }
  // accept-new and "no" both add an unknown key.
  if (policy.checking != HostKeyChecking::kYes) return std::nullopt;
  return unknown_key(target, name);
}

Failure authentication_refusal(const SshLogin& login, const SshIdentities& identities,
                               const SshTarget& target) {
  std::vector<std::string> tried = login.tried;
  tried.insert(tried.end(), identities.unusable.begin(), identities.unusable.end());
  for (const ForeignIdentity& each : identities.foreign) {
    tried.push_back(each.name + " (of type " + each.type +
                    ", which this machine's ssh does not use)");
  }
  if (tried.empty()) tried = {"nothing: no key file and no ssh-agent was found"};
  const bool half = login.half_authenticated;
  const std::string& methods = login.methods;
  std::string what = half ? "a key alone does not let user " + target.user + " in"
                          : "no key was accepted for user " + target.user;
  what += "; tried " + join(tried, ", ");
  const bool takes_keys = methods.empty() || has_name(methods, "publickey");
  if (half || !takes_keys) what += "; the server wants " + methods;
  const std::string sentence = last_sentence(login.closed);
  if (!sentence.empty()) {
    what += "; the server ended the login: " + quote(sentence);
    if (sentence.find("Too many authentication failures") != std::string::npos) {
      return refusal(failure::kSshAuth, std::move(what),
                     "the server allows few attempts (MaxAuthTries): name the right key with -i "
                     "and set IdentitiesOnly yes in the ssh config, or remove others from "
                     "ssh-agent (ssh-add -d)");
    }
  } else if (!login.closed.empty() && methods.empty()) {
    return refusal(failure::kSshAuth,
                   "the server ended the login of user " + target.user +
                       " without looking at a key: " + login.closed,
                   "see its log (journalctl -u ssh): it may refuse this user or address "
                   "(RefuseConnection in its sshd_config)");
  } else if (!login.closed.empty()) {
    what += "; the server closed the connection: " + login.closed;
  }
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

Failure name_server_timeout(const std::string& name) {
  return {std::string(failure::kResolve), "the name server does not answer for " + name, ""};
}

Failure connect_timeout(const std::string& addresses, const std::string& waited) {
  return {std::string(failure::kConnectTimeout),
          "no answer from " + addresses + " within " + waited,
          "check that the host is up and that no firewall drops the packets"};
}

Failure banner_timeout(const std::string& waited) {
  return {std::string(failure::kConnectTimeout),
          "it accepted the connection but sent no SSH banner within " + waited,
          "look at its load, and restart its sshd if it hangs; if it handles too many logins at "
          "once, raise MaxStartups there, or lower --fan-out"};
}

Failure key_exchange_timeout(const std::string& waited, const std::string& address) {
  return {std::string(failure::kConnectTimeout), "the key exchange did not finish within " + waited,
          "see whether large packets get through (ping -M do -s 1400 " + address +
              "): a smaller MTU on the way stops a key exchange; else look at its load"};
}

Failure login_timeout(const std::string& waited) {
  return {std::string(failure::kConnectTimeout),
          "its SSH server did not complete the login within " + waited,
          "see that the host finds users and names fast: its directory service (sssd, LDAP), its "
          "name servers (UseDNS in its sshd_config)"};
}

Failure shell_timeout() {
  return {std::string(failure::kShellTimeout), "the remote shell did not start the agent in time",
          "look for what waits or asks a question in the login scripts there (~/.bashrc, "
          "~/.profile)"};
}

Failure queue_timeout() {
  return {std::string(failure::kStartTimeout), "timed out in the --fan-out queue",
          "raise --start-timeout or --fan-out"};
}

Failure busy_refusal(int refusals, const std::string& words, bool by_proxy) {
  const std::string times = std::to_string(refusals) + " times";
  if (by_proxy && words.empty()) {
    return {std::string(failure::kConnect), "the proxy command ended " + times + " without output",
            "check that the ProxyCommand (ProxyJump) works by hand; the sshd behind it may be too "
            "busy (MaxStartups)"};
  }
  // sshd sends this from 9.8 on, for two reasons.
  if (words.find("Not allowed at this time") != std::string::npos) {
    return {
        std::string(failure::kSshBusy),
        "the server refused the connection " + times + ": it said " + quote(words),
        "failed logins from this address may have earned it a penalty: wait 15 s or longer, and "
        "see that the login itself works; PerSourcePenaltyExemptList in its sshd_config exempts "
        "addresses. If many log in at once, raise MaxStartups there"};
  }
  return {std::string(failure::kSshBusy),
          "the server was too busy " + times +
              (words.empty() ? ": it closed the connection at once" : ": it said " + quote(words)),
          "raise MaxStartups in its sshd_config, or lower --fan-out"};
}

}  // namespace hora::launcher
