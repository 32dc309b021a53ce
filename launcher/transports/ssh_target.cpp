// Follows OpenSSH's own precedence: the command line first, then the user's file, then the
// system's, then the defaults. Once one file is given with --ssh-config-file, only that one counts
// (ssh -F).
#include "launcher/transports/ssh_target.h"

#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

constexpr int kDefaultPort = 22;
constexpr const char* kDefaultIdentities[] = {"id_ed25519", "id_ecdsa", "id_rsa"};

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

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

// Keys and known_hosts files are read for every host, and by libssh, which would wait at a pipe
// forever.
bool is_pipe(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 &&
         (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

bool is_key_file(const std::string& path) { return is_file(path) && !is_pipe(path); }

Error no_file(const std::string& what, const std::string& path) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  return make_error(ErrorCode::kNotFound,
                    "the " + what + " " + path + (exists ? " is no file" : " is not there"));
}

std::string environment(const char* name) {
  const char* value = ::getenv(name);
  return value != nullptr ? value : "";
}

// Like ssh, take home and name from the password database, whatever $HOME and $USER say.
std::pair<std::string, std::string> home_and_name() {
  // A static buffer suffices for local accounts; with a larger record the environment decides.
  char buffer[16 * 1024];
  passwd record{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &record, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    return {record.pw_dir, record.pw_name};
  }
  return {environment("HOME"), environment("USER")};
}

// Tokens such as %h may name a file per host, so the expansion happens per host, too.
std::vector<std::string> known_hosts_paths(const std::vector<std::string>& files,
                                           const SshTokens& tokens) {
  std::vector<std::string> kept;
  for (const auto& file : files) {
    if (equals_ignoring_case(file, "none")) continue;
    std::string path = expand_tokens(file, tokens);
    if (!is_pipe(path)) kept.push_back(std::move(path));
  }
  return kept;
}

// Returns the line of the configuration that forbids keys; empty if keys may be used.
std::string why_no_keys(const SshConfig& config) {
  if (!config.pubkey_authentication.value_or(true)) return "PubkeyAuthentication no";
  if (!config.preferred_authentications) return {};
  for (const std::string_view method : split(*config.preferred_authentications, ',')) {
    if (method == "publickey") return {};
  }
  return "PreferredAuthentications " + *config.preferred_authentications;
}

// The system's ssh makes the jumps, with all of its configuration: `ssh -W` to the last hop, and -J
// with the hops before it. BatchMode keeps it from asking for a password.
std::vector<std::string> jump_argv(const std::string& jump, const SshTarget& target,
                                   const std::string& config_file) {
  const std::size_t last = jump.rfind(',');
  std::string hop = last == std::string::npos ? jump : jump.substr(last + 1);
  std::vector<std::string> argv{"ssh", "-o", "BatchMode=yes"};
  if (!config_file.empty()) argv.insert(argv.end(), {"-F", config_file});
  if (last != std::string::npos) {
    argv.push_back("-J");
    argv.push_back(jump.substr(0, last));
  }
  // A hop is [user@]host[:port], a URI, or an IPv6 address in brackets, whose colons are no port.
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
  // "--" keeps a hop that begins with '-' from being an option.
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
    auto config = read_config(options_.config_file);
    if (!config) given_config_ = config.error().with_context("--ssh-config-file");
    user_config_ = text_of(std::move(config));
    return;
  }
  user_config_ = text_of(read_config(home_ + "/.ssh/config"));
  system_config_ = text_of(read_config("/etc/ssh/ssh_config"));
}

// ssh resolves a relative Include against ~/.ssh or /etc/ssh, not against the including file.
std::vector<std::string> SshTargets::include(const std::string& pattern, bool of_user) const {
  SshTokens tokens;
  tokens.home = home_;
  std::string path = expand_tokens(pattern, tokens);
  if (path.empty()) return {};
  if (path.front() != '/') path = (of_user ? home_ + "/.ssh/" : "/etc/ssh/") + path;
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
  if (!options_.config_file.empty() && !is_file(options_.config_file)) {
    return no_file("ssh config", options_.config_file);
    // A named file that is missing is an error before any host is contacted.
  }
  if (!given_config_) return given_config_.error();
  SshConfig config;
  const SshConfigQuery query{host.name, host.user, local_user_};
  read_ssh_config(
      user_config_, query, [this](const auto& p) { return include(p, true); }, config);
  read_ssh_config(
      system_config_, query, [this](const auto& p) { return include(p, false); }, config);
  if (config.too_many_included) {
    return make_error(ErrorCode::kUsage,
                      "ssh config: Include leads to too many files; one may include itself");
  }

  SshTarget target;
  target.name = host.name;
  SshTokens tokens;
  tokens.original_host = host.name;
  // HostName may use %h for the typed name; from then on %h is the resolved one, as in ssh.
  tokens.host = host.name;
  tokens.home = home_;
  tokens.local_user = local_user_;
  target.address = config.hostname ? expand_tokens(*config.hostname, tokens) : host.name;
  tokens.host = target.address;
  target.port = options_.port ? *options_.port : config.port.value_or(kDefaultPort);
  tokens.port = std::to_string(target.port);
  // user@host beats "User", which beats the local name.
  target.user = !host.user.empty() ? host.user : config.user.value_or(local_user_);
  if (target.user.empty()) {
    return make_error(ErrorCode::kNotFound,
                      "uid " + std::to_string(::getuid()) +
                          " has no user name in the password database; give the user: -H user@" +
                          host.name);
  }
  tokens.remote_user = target.user;
  target.known_as =
      config.host_key_alias ? expand_tokens(*config.host_key_alias, tokens) : target.address;

  // IdentityAgent SSH_AUTH_SOCK means the environment's agent, which is the default already.
  target.agent_socket = environment("SSH_AUTH_SOCK");
  if (config.identity_agent && *config.identity_agent != "SSH_AUTH_SOCK") {
    const bool none = equals_ignoring_case(*config.identity_agent, "none");
    target.agent_socket = none ? "" : expand_tokens(*config.identity_agent, tokens);
  }
  if (!options_.identity_file.empty()) {
    const std::string path = expand_tokens(options_.identity_file, tokens);
    // A key that the user names on the command line must exist; one in a configuration may be
    // missing, since many are written for several machines.
    if (!is_key_file(path)) return no_file("identity file", path);
    target.identity_files.push_back(path);
    target.agent_first = false;
  }
  for (const std::string& named : config.identity_files) {
    const std::string path = expand_tokens(named, tokens);
    if (is_key_file(path)) {
      target.identity_files.push_back(path);
    } else {
      target.missing_identities.push_back(path);
    }
  }
  // Explicit keys come before those of the agent: sshd only allows a few attempts.
  if (!config.identity_files.empty()) target.agent_first = false;
  // ssh tries its default names only if nothing is named.
  if (options_.identity_file.empty() && config.identity_files.empty()) {
    for (const char* name : kDefaultIdentities) {
      const std::string path = home_ + "/.ssh/" + name;
      if (is_key_file(path)) target.identity_files.push_back(path);
    }
  }
  // IdentitiesOnly excludes every key that only the agent has; here it excludes the agent.
  target.use_agent = !target.agent_socket.empty() && !config.identities_only.value_or(false);

  target.checking = config.host_key_checking.value_or(HostKeyChecking::kYes);
  if (options_.accept_new_host_keys) target.checking = HostKeyChecking::kAcceptNew;
  target.known_hosts_files =
      known_hosts_paths(config.user_known_hosts_files.value_or(
                            std::vector<std::string>{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}),
                        tokens);
  target.user_known_hosts_count = target.known_hosts_files.size();
  // New keys never go into the global files.
  for (std::string& file :
       known_hosts_paths(config.global_known_hosts_files.value_or(std::vector<std::string>{
                             "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}),
                         tokens)) {
    target.known_hosts_files.push_back(std::move(file));
  }

  if (config.connect_timeout_s) {
    target.connect_timeout = std::chrono::seconds(*config.connect_timeout_s);
  }
  // ProxyCommand wins here; the parser has kept only the one that was named first.
  if (config.proxy_command && !equals_ignoring_case(*config.proxy_command, "none")) {
    target.proxy = {"/bin/sh", "-c", "exec " + expand_tokens(*config.proxy_command, tokens)};
  } else if (config.proxy_jump && !equals_ignoring_case(*config.proxy_jump, "none")) {
    target.proxy =
        jump_argv(expand_tokens(*config.proxy_jump, tokens), target, options_.config_file);
  }
  if (config.address_family && *config.address_family != "any") {
    target.address_family = *config.address_family;
  }
  target.ciphers = config.ciphers.value_or("");
  target.kex_algorithms = config.kex_algorithms.value_or("");
  target.macs = config.macs.value_or("");
  target.host_key_algorithms = config.host_key_algorithms.value_or("");
  target.pubkey_algorithms = config.pubkey_algorithms.value_or("");
  target.bind_address = config.bind_address.value_or("");
  target.bind_interface = config.bind_interface.value_or("");
  if (config.revoked_host_keys && !equals_ignoring_case(*config.revoked_host_keys, "none")) {
    target.revoked_keys_file = expand_tokens(*config.revoked_host_keys, tokens);
  }
  target.keys_forbidden_by = why_no_keys(config);
  target.not_followed = config.not_followed;
  return target;
}

}  // namespace hora::launcher
