// SPDX-License-Identifier: Apache-2.0
// The ssh targets of a job's hosts: reads what resolve_ssh_target() needs from this machine.
#pragma once

#include <string>
#include <vector>

#include "launcher/transports/ssh_target.h"

namespace hora::launcher {

// Reads the config files once and answers for every host. Thread-safe.
class SshTargets {
 public:
  explicit SshTargets(SshOptions options);

  // Errors: an option that names a file that is not there; see also resolve_ssh_target().
  Result<SshTarget> target_of(const Host& host) const;

 private:
  std::vector<std::string> include(const std::string& pattern, bool of_user) const;

  SshOptions options_;
  SshMachine machine_;
  std::string user_config_;
  std::string system_config_;
  Status given_config_ = Ok{};  // whether --ssh-config-file could be read
};

}  // namespace hora::launcher
