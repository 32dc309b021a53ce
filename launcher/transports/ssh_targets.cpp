// SPDX-License-Identifier: Apache-2.0
// The user's file comes first, then the system's. Once one file is given with --ssh-config-file,
// only that one counts (ssh -F).
#include "launcher/transports/ssh_targets.h"

#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <tuple>
#include <utility>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

using FileKind = SshMachine::FileKind;

// The limit makes reading a file without an end (/dev/zero) stop, too.
constexpr std::size_t kLargestConfig = 4u << 20;

Result<std::string> read_config(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  return os::read_to_end(file.get(), path, kLargestConfig);
}

// Like ssh, go on without a configuration that cannot be read (a directory in its place, say). Only
// a file that the user named explicitly has to be readable.
std::string text_of(Result<std::string> config) {
  return config ? *std::move(config) : std::string();
}

FileKind kind_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return FileKind::kNone;
  if (S_ISDIR(status.st_mode)) return FileKind::kDirectory;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) ? FileKind::kPipe : FileKind::kFile;
}

std::string environment(const char* name) {
  const char* value = ::getenv(name);
  return value != nullptr ? value : "";
}

// Like ssh, take home and name from the password database, whatever $HOME and $USER say.
std::pair<std::string, std::string> home_and_name() {
  // A buffer of this size holds local accounts; with a larger record the environment decides.
  char buffer[16 * 1024];
  passwd record{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &record, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    return {record.pw_dir, record.pw_name};
  }
  return {environment("HOME"), environment("USER")};
}

}  // namespace

SshTargets::SshTargets(SshOptions options) : options_(std::move(options)) {
  std::tie(machine_.home, machine_.local_user) = home_and_name();
  machine_.agent_socket = environment("SSH_AUTH_SOCK");
  machine_.uid = ::getuid();
  machine_.kind_of = kind_of;
  if (!options_.config_file.empty()) {
    auto config = read_config(options_.config_file);
    if (!config) given_config_ = config.error().with_context("--ssh-config-file");
    user_config_ = text_of(std::move(config));
    return;
  }
  user_config_ = text_of(read_config(machine_.home + "/.ssh/config"));
  system_config_ = text_of(read_config("/etc/ssh/ssh_config"));
}

// ssh resolves a relative Include against ~/.ssh or /etc/ssh, not against the including file.
std::vector<std::string> SshTargets::include(const std::string& pattern, bool of_user) const {
  SshTokens tokens;
  tokens.home = machine_.home;
  std::string path = expand_tokens(pattern, tokens);
  if (path.empty()) return {};
  if (path.front() != '/') path = (of_user ? machine_.home + "/.ssh/" : "/etc/ssh/") + path;
  glob_t found{};
  std::vector<std::string> texts;
  if (::glob(path.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      texts.push_back(text_of(read_config(found.gl_pathv[i])));
  }
  ::globfree(&found);
  return texts;
}

Result<SshTarget> SshTargets::target_of(const Host& host) const {
  // A file that the user named and that is not there is an error before any host is contacted.
  if (!options_.config_file.empty()) {
    const FileKind kind = kind_of(options_.config_file);
    if (kind == FileKind::kNone || kind == FileKind::kDirectory) {
      return missing_file("ssh config", options_.config_file, kind);
    }
  }
  if (!given_config_) return given_config_.error();
  SshConfig config;
  const SshConfigQuery query{host.name, host.user, machine_.local_user};
  read_ssh_config(
      user_config_, query, [this](const auto& p) { return include(p, true); }, config);
  read_ssh_config(
      system_config_, query, [this](const auto& p) { return include(p, false); }, config);
  if (config.too_many_included) {
    return make_error(ErrorCode::kUsage,
                      "ssh config: Include leads to too many files; one may include itself");
  }
  return resolve_ssh_target(host, options_, config, machine_);
}

}  // namespace hora::launcher
