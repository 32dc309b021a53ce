#include "launcher/transports/ssh_target.h"

#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr int kDefaultPort = 22;
constexpr const char* kDefaultIdentities[] = {"id_ed25519", "id_ecdsa", "id_rsa"};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

std::string environment(const char* name) {
  const char* value = ::getenv(name);
  return value != nullptr ? value : "";
}

// ssh takes both from the user's record, whatever $HOME and $USER say.
std::pair<std::string, std::string> home_and_name() {
  char buffer[16 * 1024];
  passwd record{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &record, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    return {record.pw_dir, record.pw_name};
  }
  return {environment("HOME"), environment("USER")};
}

std::vector<std::string> without_none(const std::vector<std::string>& files) {
  std::vector<std::string> kept;
  for (const auto& file : files) {
    if (!equals_ignoring_case(file, "none")) kept.push_back(file);
  }
  return kept;
}

// OpenSSH itself makes the jumps, with all of its configuration.
std::vector<std::string> jump_argv(const std::string& jump, const SshTarget& target) {
  const std::size_t last = jump.rfind(',');
  std::string hop = last == std::string::npos ? jump : jump.substr(last + 1);
  std::vector<std::string> argv{"ssh", "-o", "BatchMode=yes"};
  if (last != std::string::npos) {
    argv.push_back("-J");
    argv.push_back(jump.substr(0, last));
  }
  if (hop.rfind("ssh://", 0) == 0) hop.erase(0, 6);
  const std::size_t at = hop.rfind('@');
  const std::size_t colon = hop.rfind(':');
  const bool bracketed = !hop.empty() && hop.back() == ']';
  if (colon != std::string::npos && !bracketed && (at == std::string::npos || colon > at)) {
    argv.push_back("-p");
    argv.push_back(hop.substr(colon + 1));
    hop.erase(colon);
  }
  argv.push_back("-W");
  const bool v6 = target.address.find(':') != std::string::npos;
  argv.push_back((v6 ? "[" + target.address + "]" : target.address) + ":" +
                 std::to_string(target.port));
  argv.push_back("--");
  argv.push_back(hop);
  return argv;
}

}  // namespace

std::string SshTarget::describe(const std::string& endpoint) const {
  return "host " + name + " (" +
         (endpoint.empty() ? address + ":" + std::to_string(port) : endpoint) + ")";
}

SshTargets::SshTargets(SshOptions options) : options_(std::move(options)) {
  std::tie(home_, local_user_) = home_and_name();
  if (!options_.config_file.empty()) {
    user_config_ = read_text(options_.config_file);
    return;
  }
  user_config_ = read_text(home_ + "/.ssh/config");
  system_config_ = read_text("/etc/ssh/ssh_config");
}

std::vector<std::string> SshTargets::include(const std::string& pattern, bool of_user) const {
  SshTokens tokens;
  tokens.home = home_;
  std::string path = expand_tokens(pattern, tokens);
  if (path.empty()) return {};
  if (path.front() != '/') path = (of_user ? home_ + "/.ssh/" : "/etc/ssh/") + path;
  glob_t found{};
  std::vector<std::string> texts;
  if (::glob(path.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) texts.push_back(read_text(found.gl_pathv[i]));
  }
  ::globfree(&found);
  return texts;
}

Result<SshTarget> SshTargets::target_of(const Host& host) const {
  if (!options_.config_file.empty() && !is_file(options_.config_file)) {
    return make_error(ErrorCode::kNotFound,
                      "the ssh config " + options_.config_file + " is not there");
  }
  SshConfig config;
  const SshConfigQuery query{host.name, host.user, local_user_};
  read_ssh_config(
      user_config_, query, [this](const auto& p) { return include(p, true); }, config);
  read_ssh_config(
      system_config_, query, [this](const auto& p) { return include(p, false); }, config);

  SshTarget target;
  target.name = host.name;
  SshTokens tokens;
  tokens.original_host = host.name;
  tokens.host = host.name;
  tokens.home = home_;
  tokens.local_user = local_user_;
  target.address = config.hostname ? expand_tokens(*config.hostname, tokens) : host.name;
  tokens.host = target.address;
  target.port = options_.port ? *options_.port : config.port.value_or(kDefaultPort);
  tokens.port = std::to_string(target.port);
  target.user = !host.user.empty() ? host.user : config.user.value_or(local_user_);
  tokens.remote_user = target.user;
  target.known_as =
      config.host_key_alias ? expand_tokens(*config.host_key_alias, tokens) : target.address;

  target.agent_socket = environment("SSH_AUTH_SOCK");
  if (config.identity_agent && *config.identity_agent != "SSH_AUTH_SOCK") {
    const bool none = equals_ignoring_case(*config.identity_agent, "none");
    target.agent_socket = none ? "" : expand_tokens(*config.identity_agent, tokens);
  }
  if (!options_.identity_file.empty()) {
    const std::string path = expand_tokens(options_.identity_file, tokens);
    if (!is_file(path)) {
      return make_error(ErrorCode::kNotFound, "the identity file " + path + " is not there");
    }
    target.identity_files.push_back(path);
    target.agent_first = false;
  }
  for (const std::string& named : config.identity_files) {
    const std::string path = expand_tokens(named, tokens);
    if (is_file(path)) {
      target.identity_files.push_back(path);
    } else {
      target.missing_identities.push_back(path);
    }
  }
  if (!config.identity_files.empty()) target.agent_first = false;
  if (options_.identity_file.empty() && config.identity_files.empty()) {
    for (const char* name : kDefaultIdentities) {
      const std::string path = home_ + "/.ssh/" + name;
      if (is_file(path)) target.identity_files.push_back(path);
    }
  }
  target.use_agent = !target.agent_socket.empty() && !config.identities_only.value_or(false);

  target.checking = config.host_key_checking.value_or(HostKeyChecking::kYes);
  if (options_.accept_new_host_keys) target.checking = HostKeyChecking::kAcceptNew;
  const std::vector<std::string> user_files = without_none(config.user_known_hosts_files.value_or(
      std::vector<std::string>{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}));
  for (const auto& file : user_files) {
    target.known_hosts_files.push_back(expand_tokens(file, tokens));
  }
  target.user_known_hosts_count = target.known_hosts_files.size();
  const std::vector<std::string> global_files =
      without_none(config.global_known_hosts_files.value_or(
          std::vector<std::string>{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}));
  for (const auto& file : global_files) {
    target.known_hosts_files.push_back(expand_tokens(file, tokens));
  }

  if (config.connect_timeout_s) {
    target.connect_timeout = std::chrono::seconds(*config.connect_timeout_s);
  }
  if (config.proxy_command && !equals_ignoring_case(*config.proxy_command, "none")) {
    target.proxy = {"/bin/sh", "-c", "exec " + expand_tokens(*config.proxy_command, tokens)};
  } else if (config.proxy_jump && !equals_ignoring_case(*config.proxy_jump, "none")) {
    target.proxy = jump_argv(expand_tokens(*config.proxy_jump, tokens), target);
  }
  if (config.address_family && *config.address_family != "any") {
    target.address_family = *config.address_family;
  }
  target.ciphers = config.ciphers.value_or("");
  target.kex_algorithms = config.kex_algorithms.value_or("");
  target.macs = config.macs.value_or("");
  target.host_key_algorithms = config.host_key_algorithms.value_or("");
  return target;
}

}  // namespace hora::launcher
