// SPDX-License-Identifier: Apache-2.0
// The keys that a login tries, in order: which of them an ssh-agent has, which are files, and which
// libssh cannot use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/transports/ssh_agent.h"
#include "launcher/transports/ssh_target.h"

namespace hora::launcher {

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

// As ssh does it: a file that is named stands for its key, wherever that is. With
// IdentitiesOnly the agent's other keys are left out. Reads files, asks the agent.
// `algorithms`: PubkeyAcceptedAlgorithms; empty: all.
SshIdentities plan_identities(const SshKeys& keys, std::string_view algorithms = {});

// The public key in the text of a key file: a private one in OpenSSH's format, or a public one.
// Empty where it shows none.
std::string public_key_in(std::string_view text);

}  // namespace hora::launcher
