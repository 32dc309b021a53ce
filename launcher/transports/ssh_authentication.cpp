// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/ssh_authentication.h"

#include <utility>

#include "launcher/transports/libssh_types.h"
#include "launcher/transports/ssh_agent_probe.h"

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

// ssh's order: an agent comes first.
std::vector<std::string> identities_to_try(const SshKeys& keys) {
  std::vector<std::string> identities = keys.files;
  if (!keys.agent_socket.empty() && !keys.identities_only) {
    identities.insert(identities.begin(), "");
  }
  return identities;
}

SshAuthentication::SshAuthentication(ssh_session_struct* session, const SshKeys& keys)
    : session_(session), agent_socket_(keys.agent_socket), left_(identities_to_try(keys)) {}

SshAuthentication::~SshAuthentication() = default;

// libssh needs repeated calls for each identity, so the list of what is left is a member and its
// first entry is the one under way.
SshStep SshAuthentication::proceed() {
  while (!left_.empty()) {
    const std::string identity = left_.front();
    switch (identity.empty() ? try_agent() : try_file(identity)) {
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
    loaded_.reset();
    // sshd disconnects after MaxAuthTries failures; further attempts would only blur the cause.
    if (libssh().ssh_is_connected(session_) == 0) return SshStep::kFailed;
  }
  return SshStep::kFailed;
}

// libssh goes through all keys of the agent in one call.
SshAuthentication::Attempt SshAuthentication::try_agent() {
  if (!agent_answers(agent_socket_)) {
    note_tried("ssh-agent (" + agent_socket_ + ": it does not answer)");
    return Attempt::kDenied;
  }
  return outcome_of(libssh().ssh_userauth_agent(session_, nullptr),
                    "ssh-agent (" + agent_socket_ + ")");
}

// Sends the signature at once, without asking first whether the server would accept the key. This
// saves one round trip per key. The key stays loaded between the calls for one attempt.
SshAuthentication::Attempt SshAuthentication::try_file(const std::string& path) {
  if (!loaded_) {
    ssh_key key = nullptr;
    bool asked = false;
    const int code = libssh().ssh_pki_import_privkey_file(path.c_str(), nullptr, refuse_passphrase,
                                                          &asked, &key);
    if (code != SSH_OK) {
      note_tried(path + (asked ? " (has a passphrase: use ssh-agent)" : " (cannot be read)"));
      return Attempt::kDenied;
    }
    loaded_ = std::make_unique<LoadedKey>(LoadedKey{SshKey(key)});
  }
  return outcome_of(libssh().ssh_userauth_publickey(session_, nullptr, loaded_->key.get()), path);
}

// An error while the server is still there (a key type that libssh cannot sign with, say) rules out
// this identity only. "Partial" means that the server accepted the key and wants more than a key.
SshAuthentication::Attempt SshAuthentication::outcome_of(int code, const std::string& identity) {
  if (code == SSH_AUTH_AGAIN) return Attempt::kAgain;
  if (code == SSH_AUTH_SUCCESS) return Attempt::kSuccess;
  const bool half = code == SSH_AUTH_PARTIAL;
  half_authenticated_ |= half;
  note_tried(identity +
             (half ? " (accepted, but the server asks for more than a key)" : std::string()));
  if (code == SSH_AUTH_ERROR && libssh().ssh_is_connected(session_) == 0) return Attempt::kBroken;
  return Attempt::kDenied;
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
