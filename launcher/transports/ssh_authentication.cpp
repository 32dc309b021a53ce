// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_authentication.h"

#include <utility>

#include "launcher/transports/libssh_types.h"

namespace hora::launcher {

namespace {

// Private keys with a passphrase cannot be used, because horarun never prompts. The callback
// records that libssh asked for one, so that the error can name the cause.
int refuse_passphrase(const char*, char*, size_t, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

}  // namespace

struct SshAuthentication::LoadedKey {
  SshKey key;
};

SshAuthentication::SshAuthentication(ssh_session_struct* session,
                                     std::vector<SshIdentity> identities, std::string agent_socket)
    : session_(session), agent_socket_(std::move(agent_socket)), left_(std::move(identities)) {}

SshAuthentication::~SshAuthentication() = default;

// libssh needs repeated calls for each identity, so the list of what is left is a member and its
// first entry is the one under way.
SshStep SshAuthentication::proceed() {
  while (!left_.empty()) {
    const SshIdentity& identity = left_.front();
    switch (identity.source == SshIdentity::Source::kAgent ? try_agent(identity)
                                                           : try_file(identity)) {
      case Attempt::kAgain:
        return SshStep::kAgain;
      case Attempt::kSuccess:
        return SshStep::kDone;
      case Attempt::kBroken:
        return SshStep::kFailed;
      case Attempt::kDenied:
        break;
    }
    left_.erase(left_.begin());
    begun_ = false;
    loaded_.reset();
  }
  return SshStep::kFailed;
}

// libssh lists the keys of the agent again for each call that is not a continuation.
SshAuthentication::Attempt SshAuthentication::try_agent(const SshIdentity& identity) {
  if (!relay_) {
    auto relay = SshAgentRelay::connect(agent_socket_);
    if (!relay) {
      note_tried(identity.name + " (" + relay.error().message + ")");
      return Attempt::kDenied;
    }
    relay_ = *std::move(relay);
    // libssh owns it from here on.
    (void)libssh().ssh_set_agent_socket(session_, relay_->take_agent().release());
  }
  if (!std::exchange(begun_, true)) relay_->show({identity.key, identity.comment});
  return outcome_of(libssh().ssh_userauth_agent(session_, nullptr), identity.name);
}

// Sends the signature at once, without asking first whether the server would accept the key. This
// saves one round trip per key. The key stays loaded between the calls for one attempt.
SshAuthentication::Attempt SshAuthentication::try_file(const SshIdentity& identity) {
  if (!loaded_) {
    ssh_key key = nullptr;
    bool asked = false;
    const int code = libssh().ssh_pki_import_privkey_file(identity.name.c_str(), nullptr,
                                                          refuse_passphrase, &asked, &key);
    if (code != SSH_OK) {
      note_tried(identity.name +
                 (asked ? " (has a passphrase: load it into ssh-agent)" : " (cannot be read)"));
      return Attempt::kDenied;
    }
    loaded_ = std::make_unique<LoadedKey>(LoadedKey{SshKey(key)});
  }
  return outcome_of(libssh().ssh_userauth_publickey(session_, nullptr, loaded_->key.get()),
                    identity.name);
}

// A server that ends the login (too many keys, say) leaves libssh waiting for an answer that cannot
// come: the connection counts more than the code. An error while the server is still there (a key
// type that libssh cannot sign with, say) rules out this identity only. "Partial" means that the
// server accepted the key and wants more than a key.
SshAuthentication::Attempt SshAuthentication::outcome_of(int code, const std::string& name) {
  if (code == SSH_AUTH_SUCCESS) return Attempt::kSuccess;
  const bool gone = libssh().ssh_is_connected(session_) == 0;
  if (code == SSH_AUTH_AGAIN && !gone) return Attempt::kAgain;
  const bool half = code == SSH_AUTH_PARTIAL;
  half_authenticated_ |= half;
  note_tried(name + (half ? " (accepted, but the server asks for more than a key)" : ""));
  return gone ? Attempt::kBroken : Attempt::kDenied;
}

void SshAuthentication::note_tried(const std::string& what) {
  tried_ += (tried_.empty() ? "" : ", ") + what;
}

// The server sends the list of methods with each refusal.
std::string SshAuthentication::methods() const {
  const int methods = libssh().ssh_userauth_list(session_, nullptr);
  std::string names;
  for (const auto& [method, name] : {std::pair{SSH_AUTH_METHOD_PUBLICKEY, "publickey"},
                                     std::pair{SSH_AUTH_METHOD_PASSWORD, "password"},
                                     std::pair{SSH_AUTH_METHOD_INTERACTIVE, "keyboard-interactive"},
                                     std::pair{SSH_AUTH_METHOD_HOSTBASED, "hostbased"},
                                     std::pair{SSH_AUTH_METHOD_GSSAPI_MIC, "gssapi-with-mic"}}) {
    if ((static_cast<unsigned>(methods) & method) != 0) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
  }
  return names;
}

}  // namespace hora::launcher
