// SPDX-License-Identifier: Apache-2.0
// Each names what was silent, since that is all that a person can act on.
#include "launcher/transports/ssh_silence.h"

#include "launcher/failures/failure_code.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

Failure resolver_silence(const std::string& name) {
  return {std::string(failure::kResolve), "the name server does not answer for " + name, ""};
}

Failure connect_silence(const std::string& addresses, const std::string& waited) {
  return {std::string(failure::kConnectTimeout),
          "no answer from " + addresses + " within " + waited,
          "check that the host is up and that no firewall drops the packets"};
}

Failure banner_silence(const std::string& waited) {
  return {std::string(failure::kConnectTimeout),
          "it accepted the connection but sent no SSH banner within " + waited,
          "look at its load, and restart its sshd if it hangs; if it handles too many logins at "
          "once, raise MaxStartups there, or lower --fan-out"};
}

Failure key_exchange_silence(const std::string& waited, const std::string& address) {
  return {std::string(failure::kConnectTimeout), "the key exchange did not finish within " + waited,
          "see whether large packets get through (ping -M do -s 1400 " + address +
              "): a smaller MTU on the way stops a key exchange; else look at its load"};
}

Failure login_silence(const std::string& waited) {
  return {std::string(failure::kConnectTimeout),
          "its SSH server did not complete the login within " + waited,
          "see that the host finds users and names fast: its directory service (sssd, LDAP), its "
          "name servers (UseDNS in its sshd_config)"};
}

Failure shell_silence() {
  return {std::string(failure::kShellTimeout), "the remote shell did not start the agent in time",
          "look for what waits or asks a question in the login scripts there (~/.bashrc, "
          "~/.profile)"};
}

Failure queue_silence() {
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
  // sshd says this from 9.8 on, for two reasons.
  if (words.find("Not allowed at this time") != std::string::npos) {
    return {
        std::string(failure::kSshBusy),
        "the server turned the connection away " + times + ": it said " + quote(words),
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
