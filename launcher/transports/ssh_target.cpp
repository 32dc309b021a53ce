// SPDX-License-Identifier: Apache-2.0
// OpenSSH's own precedence: the command line first, then the configuration (of which the parser has
// kept the first value of each keyword), then the defaults.
#include "launcher/transports/ssh_target.h"

#include <utility>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr int kDefaultPort = 22;
constexpr const char* kDefaultIdentities[] = {"id_ed25519", "id_ecdsa", "id_rsa"};

using FileKind = SshMachine::FileKind;

bool is_none(const std::string& value) { return equals_ignoring_case(value, "none"); }

// Keys and known_hosts files are read for every host, and by libssh, which would wait at a pipe
// forever.
std::vector<std::string> known_hosts_paths(const std::vector<std::string>& files,
                                           const SshTokens& tokens, const SshMachine& machine) {
  std::vector<std::string> kept;
  for (const auto& file : files) {
    if (is_none(file)) continue;
    // Tokens such as %h may name a file per host.
    std::string path = expand_tokens(file, tokens);
    if (machine.kind_of(path) != FileKind::kPipe) kept.push_back(std::move(path));
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

SshRoute resolve_route(const SshTarget& target, const SshOptions& options, const SshConfig& config,
                       const SshTokens& tokens) {
  SshRoute route;
  if (config.connect_timeout_s) {
    route.connect_timeout = std::chrono::seconds(*config.connect_timeout_s);
  }
  // ProxyCommand wins here; the parser has kept only the one that was named first.
  if (config.proxy_command && !is_none(*config.proxy_command)) {
    route.proxy = {"/bin/sh", "-c", "exec " + expand_tokens(*config.proxy_command, tokens)};
  } else if (config.proxy_jump && !is_none(*config.proxy_jump)) {
    route.proxy = jump_argv(expand_tokens(*config.proxy_jump, tokens), target, options.config_file);
  }
  if (config.address_family && *config.address_family != "any") {
    route.address_family = *config.address_family;
  }
  route.bind_address = config.bind_address.value_or("");
  route.bind_interface = config.bind_interface.value_or("");
  return route;
}

Result<SshKeys> resolve_keys(const SshOptions& options, const SshConfig& config,
                             const SshTokens& tokens, const SshMachine& machine) {
  SshKeys keys;
  keys.forbidden_by = why_no_keys(config);
  // IdentityAgent SSH_AUTH_SOCK means the environment's agent, which is the default already.
  keys.agent_socket = machine.agent_socket;
  if (config.identity_agent && *config.identity_agent != "SSH_AUTH_SOCK") {
    keys.agent_socket =
        is_none(*config.identity_agent) ? "" : expand_tokens(*config.identity_agent, tokens);
  }
  // IdentitiesOnly excludes every key that only the agent has; here it excludes the agent.
  keys.use_agent = !keys.agent_socket.empty() && !config.identities_only.value_or(false);
  // Explicit keys come before those of the agent: sshd only allows a few attempts.
  keys.agent_first = options.identity_file.empty() && config.identity_files.empty();
  if (!options.identity_file.empty()) {
    const std::string path = expand_tokens(options.identity_file, tokens);
    // A key that the user names on the command line must exist; one in a configuration may be
    // missing, since many are written for several machines.
    const FileKind kind = machine.kind_of(path);
    if (kind != FileKind::kFile) return missing_file("identity file", path, kind);
    keys.files.push_back(path);
  }
  for (const std::string& named : config.identity_files) {
    const std::string path = expand_tokens(named, tokens);
    (machine.kind_of(path) == FileKind::kFile ? keys.files : keys.missing).push_back(path);
  }
  // ssh tries its default names only if nothing is named.
  if (!keys.agent_first) return keys;
  for (const char* name : kDefaultIdentities) {
    const std::string path = machine.home + "/.ssh/" + name;
    if (machine.kind_of(path) == FileKind::kFile) keys.files.push_back(path);
  }
  return keys;
}

SshHostKeyPolicy resolve_host_keys(const SshTarget& target, const SshOptions& options,
                                   const SshConfig& config, const SshTokens& tokens,
                                   const SshMachine& machine) {
  SshHostKeyPolicy policy;
  policy.known_as =
      config.host_key_alias ? expand_tokens(*config.host_key_alias, tokens) : target.address;
  policy.checking = config.host_key_checking.value_or(HostKeyChecking::kYes);
  if (options.accept_new_host_keys) policy.checking = HostKeyChecking::kAcceptNew;
  policy.known_hosts_files =
      known_hosts_paths(config.user_known_hosts_files.value_or(
                            std::vector<std::string>{"~/.ssh/known_hosts", "~/.ssh/known_hosts2"}),
                        tokens, machine);
  policy.user_file_count = policy.known_hosts_files.size();
  // New keys never go into the global files.
  for (std::string& file :
       known_hosts_paths(config.global_known_hosts_files.value_or(std::vector<std::string>{
                             "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}),
                         tokens, machine)) {
    policy.known_hosts_files.push_back(std::move(file));
  }
  if (config.revoked_host_keys && !is_none(*config.revoked_host_keys)) {
    policy.revoked_keys_file = expand_tokens(*config.revoked_host_keys, tokens);
  }
  return policy;
}

}  // namespace

Error missing_file(const std::string& what, const std::string& path, FileKind kind) {
  return make_error(ErrorCode::kNotFound,
                    "the " + what + " " + path +
                        (kind == FileKind::kNone ? " does not exist" : " is not a regular file"));
}

std::string SshTarget::describe(const std::string& endpoint) const {
  return "host " + name + " (" +
         (endpoint.empty() ? address + ":" + std::to_string(port) : endpoint) + ")";
}

Result<SshTarget> resolve_ssh_target(const Host& host, const SshOptions& options,
                                     const SshConfig& config, const SshMachine& machine) {
  SshTarget target;
  target.name = host.name;
  SshTokens tokens;
  tokens.original_host = host.name;
  tokens.home = machine.home;
  tokens.local_user = machine.local_user;
  // HostName may use %h for the typed name; from then on %h is the resolved one, as in ssh.
  tokens.host = host.name;
  target.address = config.hostname ? expand_tokens(*config.hostname, tokens) : host.name;
  tokens.host = target.address;
  target.port = options.port ? *options.port : config.port.value_or(kDefaultPort);
  tokens.port = std::to_string(target.port);
  // user@host beats "User", which beats the local name.
  target.user = !host.user.empty() ? host.user : config.user.value_or(machine.local_user);
  if (target.user.empty()) {
    return make_error(ErrorCode::kNotFound,
                      "uid " + std::to_string(machine.uid) +
                          " has no user name in the password database; give the user: -H user@" +
                          host.name);
  }
  tokens.remote_user = target.user;

  auto keys = resolve_keys(options, config, tokens, machine);
  if (!keys) return std::move(keys).error();
  target.keys = *std::move(keys);
  target.host_keys = resolve_host_keys(target, options, config, tokens, machine);
  target.route = resolve_route(target, options, config, tokens);
  target.algorithms = {config.ciphers.value_or(""), config.kex_algorithms.value_or(""),
                       config.macs.value_or(""), config.host_key_algorithms.value_or(""),
                       config.pubkey_algorithms.value_or("")};
  target.not_followed = config.not_followed;
  return target;
}

}  // namespace hora::launcher
