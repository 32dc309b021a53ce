// SPDX-License-Identifier: Apache-2.0
// The keys of an ssh-agent, and their use by libssh one at a time. libssh alone would take all of
// them, in its own order, and none of those that follow one that it cannot parse.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

struct AgentKey {
  std::string key;  // public, in wire format
  std::string comment;
};

// Error: why the agent cannot be used. An agent that takes the connection and then says nothing is
// waited for once, for all hosts. Any thread.
Result<std::vector<AgentKey>> list_agent_keys(const std::string& socket_path);

// Between libssh and an agent: it shows libssh one key, and passes on what that is to sign.
class SshAgentRelay {
 public:
  static Result<std::unique_ptr<SshAgentRelay>> connect(const std::string& socket_path);
  ~SshAgentRelay();
  SshAgentRelay(const SshAgentRelay&) = delete;
  SshAgentRelay& operator=(const SshAgentRelay&) = delete;

  // The descriptor that is libssh's agent, for its owner. Once.
  os::Fd take_agent();
  // From now on, the only key. Not while libssh waits for an answer.
  void show(AgentKey key);

 private:
  struct Pipes;
  explicit SshAgentRelay(std::unique_ptr<Pipes> pipes);
  std::unique_ptr<Pipes> pipes_;
};

}  // namespace hora::launcher
