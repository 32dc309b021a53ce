// SPDX-License-Identifier: Apache-2.0
// The ssh targets of a job's hosts: what OpenSSH's client on this machine prints for them
// (`ssh -G`), or libssh's parser where there is no client.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "launcher/transports/ssh_target.h"
#include "rendezvous/base/result.h"

struct ssh_session_struct;  // libssh's

namespace hora::launcher {

class SshAnswers;  // of the ssh program

// Thread-safe.
class SshTargets {
 public:
  explicit SshTargets(SshOptions options);
  ~SshTargets();  // saves the answers of ssh for later launches

  // Whether the files that the options name are there.
  Status check() const;
  // Whether target_of() need not run ssh.
  bool remembers(const Host& host);
  // Blocks: ssh runs, unless its answer is remembered.
  Result<SshTarget> target_of(const Host& host);

  bool has_program() const { return answers_ != nullptr; }
  // The command that reaches hosts by the ssh program; empty where there is none.
  std::vector<std::string> program_command();

 private:
  Result<SshTarget> by_libssh(const Host& host);
  Status read_by_libssh(ssh_session_struct* session, const Host& host);

  const SshOptions options_;
  SshMachine machine_;
  std::string program_;
  std::unique_ptr<SshAnswers> answers_;  // null: there is no ssh program
  std::mutex mutex_;
  std::set<std::string> warnings_;  // of libssh that were passed on
};

}  // namespace hora::launcher
