// SPDX-License-Identifier: Apache-2.0
// Logs in to an ssh server with public keys, one identity after another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/transports/ssh_agent.h"
#include "launcher/transports/ssh_identities.h"

struct ssh_session_struct;  // libssh's

namespace hora::launcher {

// The result of one step on a connection in non-blocking mode. kAgain: call again when the socket
// is ready.
enum class SshStep { kAgain, kDone, kFailed };

// Not thread-safe; one thread at a time. The session must outlive it.
class SshAuthentication {
 public:
  // `agent_socket`: where the agent of those identities listens.
  SshAuthentication(ssh_session_struct* session, std::vector<SshIdentity> identities,
                    std::string agent_socket);
  ~SshAuthentication();
  SshAuthentication(const SshAuthentication&) = delete;
  SshAuthentication& operator=(const SshAuthentication&) = delete;

  SshStep proceed();
  // The identities that failed, and why: for the error text.
  const std::string& tried() const { return tried_; }
  // The server accepted a key and asks for a second factor.
  bool half_authenticated() const { return half_authenticated_; }
  // The methods that the server accepts: "publickey, password".
  std::string methods() const;

 private:
  enum class Attempt { kAgain, kSuccess, kDenied, kBroken };
  Attempt try_agent(const SshIdentity& identity);
  Attempt try_file(const SshIdentity& identity);
  Attempt outcome_of(int code, const std::string& name);
  void note_tried(const std::string& what);

  struct LoadedKey;
  ssh_session_struct* session_;
  const std::string agent_socket_;
  std::unique_ptr<SshAgentRelay> relay_;  // from the first key of the agent on
  std::vector<SshIdentity> left_;         // still to be tried; the first one is under way
  bool begun_ = false;                    // the first one is
  std::unique_ptr<LoadedKey> loaded_;     // of the attempt under way
  std::string tried_;
  bool half_authenticated_ = false;
};

}  // namespace hora::launcher
