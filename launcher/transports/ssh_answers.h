// SPDX-License-Identifier: Apache-2.0
// The answers of this machine's ssh program about hosts (`ssh -G`), remembered from launch to
// launch: an answer is the same as long as the program, the question and the text of every file
// are, unless the configuration runs commands or asks name servers.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/transports/ssh_target.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The text of the configuration files, those of Include too, and the variables that they name.
struct SshConfigFiles {
  std::string text;             // of all, with their names
  std::set<std::string> paths;  // that were looked for
  bool decides_alone = true;    // false: a command, the network or the environment has a say
  bool endless = false;         // more Include files than any configuration has

  // `user_file` empty: that of `home` and then the system's.
  static SshConfigFiles read(const std::string& user_file, const std::string& home);
};

// Thread-safe.
class SshAnswers {
 public:
  // `program`: of ssh. `folder`: for what is remembered; empty: nothing is.
  SshAnswers(std::string program, const SshOptions& options, const SshMachine& machine,
             std::string folder);

  // Whether of() has its answer, and that without configuration.
  bool knows(const Host& host);
  // Blocks while ssh runs. Errors: ssh's own words about the configuration.
  Result<SshSettings> of(const Host& host);
  // Without any configuration; empty where the program is not OpenSSH's. Lives as long as this.
  const SshSettings& defaults();

  // Keeps what was learnt. That this fails costs later launches time and nothing else.
  void save();

 private:
  std::vector<std::string> question_about(const Host& host) const;
  Result<std::string> ask(const std::vector<std::string>& question);
  Result<SshSettings> settings(const std::vector<std::string>& question);
  void load();

  const std::string program_;
  const std::string folder_;
  std::vector<std::string> options_;  // of every question
  SshConfigFiles files_;
  std::string key_;   // all that the answers depend on
  std::string name_;  // of the file in the folder
  std::once_flag defaults_asked_;
  SshSettings defaults_;
  std::mutex mutex_;
  std::map<std::string, std::string> known_;  // by question
  std::set<std::string> warnings_;            // that were passed on
  bool learnt_ = false;
};

}  // namespace hora::launcher
