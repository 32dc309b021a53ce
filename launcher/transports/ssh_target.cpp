// SPDX-License-Identifier: Apache-2.0
// Each keyword that `ssh -G` prints is in exactly one of three sets: applied here, without effect
// on a session that runs one command without a terminal (kHarmless), or all others, which are a
// reason for the ssh program when their value is not the default. So is what a later OpenSSH adds.
#include "launcher/transports/ssh_target.h"

#include <algorithm>
#include <utility>

#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using FileKind = SshMachine::FileKind;

// The cheap algorithms come first, because the client's order decides, not the server's. OpenSSH's
// own client prefers a post-quantum exchange that costs about 80 ms of processor time. sshd leaves
// P-256 to OpenSSL, which has it in assembly, and computes curve25519 in portable C by itself.
constexpr std::string_view kKexAlgorithms =
    "ecdh-sha2-nistp256,curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp384,"
    "ecdh-sha2-nistp521,diffie-hellman-group14-sha256,diffie-hellman-group16-sha512,"
    "diffie-hellman-group18-sha512,diffie-hellman-group-exchange-sha256";
constexpr std::string_view kCiphers =
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,"
    "aes192-ctr,aes256-ctr";

constexpr std::string_view kApplied =
    "addressfamily certificatefile ciphers compression connecttimeout "
    "controlpath forwardx11 globalknownhostsfile gssapiauthentication hashknownhosts "
    "hostkeyalgorithms hostkeyalias hostname identitiesonly identityagent identityfile "
    "kexalgorithms macs port preferredauthentications proxycommand proxyjump "
    "pubkeyacceptedalgorithms pubkeyacceptedkeytypes pubkeyauthentication requiredrsasize "
    "stricthostkeychecking user userknownhostsfile";

// What concerns prompts, terminals, what is shown, how the name was found, the details of features
// that are off (else the feature itself is a reason), or what is kept for later sessions. The
// environment (sendenv) travels in the stream to the agent, which has heartbeats of its own.
constexpr std::string_view kHarmless =
    "addkeystoagent batchmode canonicaldomains canonicalizefallbacklocal canonicalizehostname "
    "canonicalizemaxdots canonicalizepermittedcnames casignaturealgorithms clearallforwardings "
    "controlmaster controlpersist enableescapecommandline enablesshkeysign escapechar "
    "exitonforwardfailure fingerprinthash forkafterauthentication forwardx11timeout "
    "forwardx11trusted gatewayports gssapiclientidentity gssapikexalgorithms "
    "gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns host hostbasedacceptedalgorithms "
    "hostbasedkeytypes ignoreunknown ipqos kbdinteractiveauthentication kbdinteractivedevices "
    "challengeresponseauthentication localcommand loglevel logverbose numberofpasswordprompts "
    "obscurekeystroketiming passwordauthentication permitremoteopen requesttty sendenv "
    "serveralivecountmax serveraliveinterval stdinnull streamlocalbindmask streamlocalbindunlink "
    "syslogfacility tag tcpkeepalive tunneldevice updatehostkeys visualhostkey warnweakcrypto "
    "xauthlocation";

bool has_word(std::string_view words, std::string_view word, char separator) {
  const auto all = split(words, separator);
  return std::find(all.begin(), all.end(), word) != all.end();
}

// Translates the settings of one host for libssh, and notes the first that libssh cannot apply.
// The system's ssh makes the jumps, with all of its configuration: `ssh -W` to the last hop, and -J
// with the hops before it. BatchMode keeps it from asking for a password.
std::vector<std::string> jump_argv(const std::string& jump, const SshTarget& target,
                                   const std::string& config_file) {
  const std::size_t last = jump.rfind(',');
  std::string hop = last == std::string::npos ? jump : jump.substr(last + 1);
  std::vector<std::string> argv{"ssh", "-o", "BatchMode=yes"};
  if (!config_file.empty()) argv.insert(argv.end(), {"-F", config_file});
  if (last != std::string::npos) argv.insert(argv.end(), {"-J", jump.substr(0, last)});
  // A hop is [user@]host[:port], or an IPv6 address in brackets, whose colons are not a port.
  const std::size_t at = hop.rfind('@');
  const std::size_t colon = hop.rfind(':');
  const bool bracketed = !hop.empty() && hop.back() == ']';
  if (colon != std::string::npos && !bracketed && (at == std::string::npos || colon > at)) {
    argv.insert(argv.end(), {"-p", hop.substr(colon + 1)});
    hop.erase(colon);
  }
  // "--" keeps a hop that begins with '-' from being an option.
  const std::string end = "[" + target.address + "]:" + std::to_string(target.port);
  argv.insert(argv.end(), {"-W", end, "--", hop});
  return argv;
}

class Resolution {
 public:
  Resolution(const Host& host, const SshSettings& settings, const SshSettings& defaults,
             const SshMachine& machine)
      : settings_(settings), defaults_(defaults), machine_(machine) {
    target_.name = host.name;
  }

  SshTarget resolve(const SshOptions& options) {
    target_.address = first("hostname");
    target_.port = parse_int<int>(first("port")).value_or(22);
    target_.user = first("user");
    const std::string& host = machine_.host_name;
    // %C is a hash that only ssh computes.
    tokens_ = {{'%', "%"},
               {'h', target_.address},
               {'n', target_.name},
               {'p', std::to_string(target_.port)},
               {'r', target_.user},
               {'k', first("hostkeyalias").empty() ? target_.name : first("hostkeyalias")},
               {'j', first("proxyjump")},
               {'u', machine_.local_user},
               {'d', machine_.home},
               {'i', std::to_string(machine_.uid)},
               {'l', host},
               {'L', host.substr(0, host.find('.'))}};
    // libssh gets a connected socket, and our addresses have no interface.
    if (target_.address.find('%') != std::string::npos)
      needs_program("hostname " + target_.address);
    check_keywords();
    set_keys();
    set_host_keys();
    set_route(options);
    set_algorithms();
    return std::move(target_);
  }

 private:
  const std::vector<std::string>& all(std::string_view key) const {
    static const std::vector<std::string> none;
    const auto found = settings_.find(key);
    return found == settings_.end() ? none : found->second;
  }

  std::string first(std::string_view key) const {
    const auto& values = all(key);
    return values.empty() ? "" : values.front();
  }

  bool is_default(std::string_view key) const {
    const auto found = defaults_.find(key);
    return found != defaults_.end() && found->second == all(key);
  }

  bool is_on(std::string_view key) const {
    const std::string value = first(key);
    return value == "yes" || value == "true";
  }

  void needs_program(const std::string& why) {
    if (target_.program_reason.empty()) target_.program_reason = why;
  }

  // Compared with what ssh prints without any configuration, so that a value that a distribution or
  // a later version has as its default is not a reason.
  void check_keywords() {
    for (const auto& [key, values] : settings_) {
      const std::string& value = values.front();
      // Most keywords that are not set are not printed; "none" means the same.
      const bool unset = value.empty() || (value == "none" && defaults_.count(key) == 0);
      if (is_default(key) || unset || has_word(kApplied, key, ' ') ||
          has_word(kHarmless, key, ' ')) {
        continue;
      }
      if (key.ends_with("forward") && is_on("clearallforwardings")) continue;
      // A detail of a proxy, without a proxy.
      if (key == "proxyusefdpass" && first("proxycommand").empty()) continue;
      needs_program(key + " " + value);
    }
    // Without a display, ssh forwards none.
    if (is_on("forwardx11") && machine_.variable("DISPLAY")) needs_program("forwardx11 yes");
    // ssh -G has filled in the tokens of this path.
    const std::string master = first("controlpath");
    if (!master.empty() && machine_.listens(master)) {
      needs_program("controlpath " + master + ", where a connection is open");
    }
  }

  // --- tokens ------------------------------------------------------------------------------------

  // Nothing: a token that is not one of `tokens`, or a variable that is not set.
  std::optional<std::string> fill(std::string_view text, std::string_view tokens,
                                  bool variables) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::string_view rest = text.substr(i);
      if (text[i] == '%') {
        if (++i >= text.size() || tokens.find(text[i]) == std::string_view::npos)
          return std::nullopt;
        out += tokens_.at(text[i]);
      } else if (variables && rest.starts_with("${")) {
        const std::size_t end = rest.find('}');
        if (end == std::string_view::npos) return std::nullopt;
        const auto value = machine_.variable(std::string(rest.substr(2, end - 2)));
        if (!value) return std::nullopt;
        out += *value;
        i += end;
      } else {
        out += text[i];
      }
    }
    return out;
  }

  // The path that a setting names. What only ssh can work out is a reason for it.
  std::string path(const std::string& key, const std::string& text) {
    std::string rest = text;
    std::string home;
    if (rest == "~" || rest.starts_with("~/")) {
      home = machine_.home;
      rest.erase(0, 1);
    }
    const auto filled = fill(rest, "%hnprkjudilL", true);
    if (!filled || (home.empty() && rest.starts_with("~"))) needs_program(key + " " + text);
    return home + filled.value_or("");
  }

  // --- keys --------------------------------------------------------------------------------------

  // Without prompts, keys and tickets remain. Debian's configuration allows tickets for every host,
  // so they alone are not a reason: keys are tried first, and the ssh program follows when the
  // server accepts tickets and none of the keys. Without a ticket it would only show the same keys
  // again, and servers punish failed logins.
  void set_methods() {
    std::string methods = first("preferredauthentications");
    if (methods.empty()) methods = "gssapi-with-mic,publickey";
    const bool takes_tickets =
        is_on("gssapiauthentication") && has_word(methods, "gssapi-with-mic", ',');
    if (takes_tickets && machine_.may_have_ticket()) {
      target_.keys.program_methods.emplace_back("gssapi-with-mic");
    }
    const std::string keys = first("pubkeyauthentication");
    if (keys == "no" || keys == "false") {
      target_.keys.forbidden_by = "PubkeyAuthentication no";
    } else if (!has_word(methods, "publickey", ',')) {
      target_.keys.forbidden_by = "PreferredAuthentications " + methods;
    }
    if (!target_.keys.forbidden_by.empty() && takes_tickets) {
      needs_program("gssapiauthentication yes");
    }
  }

  // "SSH_AUTH_SOCK" means the environment's agent, "$NAME" another variable of the environment.
  void set_agent() {
    const std::string agent = first("identityagent");
    std::string& socket = target_.keys.agent_socket;
    if (agent.empty() || agent == "SSH_AUTH_SOCK") {
      socket = machine_.variable("SSH_AUTH_SOCK").value_or("");
    } else if (agent.starts_with("$") && !agent.starts_with("${")) {
      socket = machine_.variable(agent.substr(1)).value_or("");
    } else if (agent != "none") {
      socket = path("identityagent", agent);
    }
  }

  // OpenSSH offers a certificate that lies next to a key, too.
  void set_identities() {
    // Most accounts have few of the default files; only names from the configuration are reported.
    const bool named = !is_default("identityfile");
    for (const std::string& certificate : all("certificatefile")) {
      if (certificate == "none") continue;
      const std::string file = path("certificatefile", certificate);
      if (machine_.kind_of(file) == FileKind::kFile) needs_program("certificatefile " + file);
    }
    for (const std::string& identity : all("identityfile")) {
      if (identity == "none") continue;
      const std::string file = path("identityfile", identity);
      const FileKind kind = machine_.kind_of(file);
      const std::string certificate = file + "-cert.pub";
      if (machine_.kind_of(certificate) == FileKind::kFile) {
        needs_program("the certificate " + certificate);
      }
      const bool is_there =
          kind == FileKind::kFile ||
          (kind == FileKind::kNone && machine_.kind_of(file + ".pub") == FileKind::kFile);
      if (is_there) {
        target_.keys.files.push_back(file);
      } else if (named) {
        target_.keys.missing.push_back(file);
      }
    }
  }

  void set_keys() {
    target_.keys.identities_only = is_on("identitiesonly");
    set_agent();
    set_methods();
    set_identities();
  }

  // --- host keys ---------------------------------------------------------------------------------

  // ssh -G prints the names of a list with a blank in between, and a blank in a name as it is.
  // Named pipes are left out: libssh and we read these files once for each host.
  std::vector<std::string> files_of(const std::string& key) {
    const std::string list = first(key);
    std::vector<std::string> files;
    for (const std::string_view word : split(list, ' ')) {
      if (word == "none" || word.empty()) continue;
      std::string file(word);
      if (file.starts_with("~/")) file.replace(0, 1, machine_.home);
      if (!file.starts_with("/")) needs_program(key + " " + list);
      if (machine_.kind_of(file) != FileKind::kPipe) files.push_back(std::move(file));
    }
    return files;
  }

  void set_host_keys() {
    SshHostKeyPolicy& policy = target_.host_keys;
    const std::string alias = first("hostkeyalias");
    policy.is_alias = !alias.empty();
    policy.known_as = policy.is_alias ? alias : target_.address;
    const std::string checking = first("stricthostkeychecking");
    if (checking == "accept-new") policy.checking = HostKeyChecking::kAcceptNew;
    if (checking == "no" || checking == "off" || checking == "false") {
      policy.checking = HostKeyChecking::kNo;
    }
    policy.hash_names = is_on("hashknownhosts");
    policy.known_hosts_files = files_of("userknownhostsfile");
    policy.user_file_count = policy.known_hosts_files.size();
    for (std::string& file : files_of("globalknownhostsfile")) {
      policy.known_hosts_files.push_back(std::move(file));
    }
  }

  // --- the connection ----------------------------------------------------------------------------

  // A proxy command runs as in ssh: by the user's shell, which it replaces.
  void set_route(const SshOptions& options) {
    SshRoute& route = target_.route;
    const auto timeout = parse_int<int>(first("connecttimeout"));
    if (timeout && *timeout > 0) route.connect_timeout = std::chrono::seconds(*timeout);
    constexpr std::string_view kProxyTokens = "%hnprk";
    if (const std::string command = first("proxycommand"); !command.empty() && command != "none") {
      const auto filled = fill(command, kProxyTokens, false);
      if (!filled) needs_program("proxycommand " + command);
      route.proxy = {machine_.shell};
      // A bash whose input is a socket takes itself for one of rshd, and reads ~/.bashrc.
      if (machine_.shell.ends_with("/bash")) route.proxy.emplace_back("--norc");
      route.proxy.insert(route.proxy.end(), {"-c", "exec " + filled.value_or("")});
    } else if (const std::string jump = first("proxyjump"); !jump.empty() && jump != "none") {
      const auto filled = fill(jump, kProxyTokens, false);
      if (!filled) needs_program("proxyjump " + jump);
      route.proxy = jump_argv(filled.value_or(""), target_, options.config_file);
    }
    if (first("addressfamily") != "any") route.address_family = first("addressfamily");
    route.compression = is_on("compression");
  }

  // A list that is not configured is brought into our order; what it lacks is not used.
  std::string preferred(std::string_view key, std::string_view ours) const {
    const std::string list = first(key);
    if (!is_default(key) || list.empty()) return list;
    std::vector<std::string> kept;
    for (const std::string_view name : split(ours, ',')) {
      if (has_word(list, name, ',')) kept.emplace_back(name);
    }
    return kept.empty() ? list : join(kept, ",");
  }

  void set_algorithms() {
    SshAlgorithms& algorithms = target_.algorithms;
    algorithms.kex = preferred("kexalgorithms", kKexAlgorithms);
    algorithms.ciphers = preferred("ciphers", kCiphers);
    algorithms.macs = first("macs");
    algorithms.host_keys = first("hostkeyalgorithms");
    algorithms.public_keys = first("pubkeyacceptedalgorithms");
    if (algorithms.public_keys.empty()) algorithms.public_keys = first("pubkeyacceptedkeytypes");
    algorithms.rsa_bits = parse_int<int>(first("requiredrsasize")).value_or(0);
  }

  const SshSettings& settings_;
  const SshSettings& defaults_;
  const SshMachine& machine_;
  SshTarget target_;
  std::map<char, std::string> tokens_;  // what %h and others stand for
};

}  // namespace

std::vector<std::string> ssh_arguments(const SshOptions& options) {
  std::vector<std::string> words{"-o", "BatchMode=yes"};
  if (!options.config_file.empty()) words.insert(words.end(), {"-F", options.config_file});
  if (options.port) words.insert(words.end(), {"-p", std::to_string(*options.port)});
  if (!options.identity_file.empty()) words.insert(words.end(), {"-i", options.identity_file});
  if (options.accept_new_host_keys) {
    words.insert(words.end(), {"-o", "StrictHostKeyChecking=accept-new"});
  }
  return words;
}

// One setting for each line; a value is the rest of its line.
SshSettings parse_ssh_settings(std::string_view text) {
  SshSettings settings;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    settings[lower_case(line.substr(0, blank))].emplace_back(line.substr(blank + 1));
  }
  return settings;
}

std::string SshTarget::describe(const std::string& endpoint) const {
  return "host " + name + " (" +
         (endpoint.empty() ? address + ":" + std::to_string(port) : endpoint) + ")";
}

SshTarget resolve_ssh_target(const Host& host, const SshOptions& options,
                             const SshSettings& settings, const SshSettings& defaults,
                             const SshMachine& machine) {
  return Resolution(host, settings, defaults, machine).resolve(options);
}

}  // namespace hora::launcher
