// SPDX-License-Identifier: Apache-2.0
// The keys that a login tries, in order: which of them an ssh-agent has, which are files, and which
// libssh cannot use. Keys are in wire format (RFC 4251), and so is what an agent sends.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/transports/ssh_target.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// --- wire format ---------------------------------------------------------------------------------

inline std::string ssh_number(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

inline std::string ssh_string(std::string_view text) {
  return ssh_number(static_cast<std::uint32_t>(text.size())).append(text);
}

// Both remove what they return from `bytes`; nothing: it is too short.
inline std::optional<std::uint32_t> take_ssh_number(std::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(4);
  return value;
}

inline std::optional<std::string_view> take_ssh_string(std::string_view& bytes) {
  const auto length = take_ssh_number(bytes);
  if (!length || *length > bytes.size()) return std::nullopt;
  const std::string_view text = bytes.substr(0, *length);
  bytes.remove_prefix(*length);
  return text;
}

// The type that a public key begins with: "ssh-ed25519". Empty if it does not begin with one.
inline std::string_view type_of_key(std::string_view key) {
  return take_ssh_string(key).value_or(std::string_view());
}

// --- the agent -----------------------------------------------------------------------------------

// What listens at the path. kTimedOut: it has stopped accepting connections.
Result<os::Fd> connect_to_socket(const std::string& path);

struct AgentKey {
  std::string key;  // public, in wire format
  std::string comment;
};

// Error: why the agent cannot be used. An agent that accepts the connection and stays silent is
// waited for once, for all hosts. Any thread.
Result<std::vector<AgentKey>> list_agent_keys(const std::string& socket_path);

// Between libssh and an agent: it shows libssh one key, and passes requests to sign on. libssh
// alone would take all keys, in its own order, and none of those after one that it cannot parse.
class SshAgentRelay {
 public:
  static Result<std::unique_ptr<SshAgentRelay>> connect(const std::string& socket_path);
  ~SshAgentRelay();
  SshAgentRelay(const SshAgentRelay&) = delete;
  SshAgentRelay& operator=(const SshAgentRelay&) = delete;

  // The descriptor that is libssh's agent, for its owner. Once.
  os::Fd take_agent() { return std::move(theirs_); }
  // From now on, the only key. Not while libssh waits for an answer.
  void show(AgentKey key);

 private:
  SshAgentRelay() = default;
  void serve();
  std::string answer_list();

  os::Fd agent_;
  os::Fd ours_, theirs_;
  std::mutex mutex_;
  AgentKey shown_;
  std::thread thread_;
};

// --- the login -----------------------------------------------------------------------------------

struct SshIdentity {
  enum class Source { kFile, kAgent };
  Source source = Source::kFile;
  std::string name;     // for messages: the path, or "COMMENT of ssh-agent"
  std::string key;      // public, in wire format; empty: known once the file is loaded
  std::string comment;  // kAgent
};

// A key that only the ssh program may be able to use.
struct ForeignIdentity {
  std::string name, type;
};

struct SshIdentities {
  std::vector<SshIdentity> usable;
  std::vector<std::string> unusable;  // for the error text, with the reason
  std::vector<ForeignIdentity> foreign;
};

// As in ssh, a named file stands for its key, also in the agent. With IdentitiesOnly the agent's
// other keys are left out. Reads files, asks the agent.
// `algorithms`: PubkeyAcceptedAlgorithms; empty: all.
SshIdentities plan_identities(const SshKeys& keys, std::string_view algorithms = {});

// The public key in the text of a key file: a private one in OpenSSH's format, or a public one.
// Empty where it shows none.
std::string public_key_in(std::string_view text);

}  // namespace hora::launcher
