// SPDX-License-Identifier: Apache-2.0
// The ssh targets of a job's hosts: what OpenSSH's client on this machine says of them, or libssh
// where there is none.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/transports/ssh_answers.h"
#include "launcher/transports/ssh_target.h"

struct ssh_session_struct;  // libssh's

namespace hora::launcher {

// Thread-safe.
class SshTargets {
 public:
  explicit SshTargets(SshOptions options);
  ~SshTargets();  // keeps what ssh has said

  // Whether the files that the options name are there.
  Status check() const;
  // Whether target_of() need not run ssh.
  bool remembers(const Host& host) { return answers_ && answers_->knows(host); }
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
