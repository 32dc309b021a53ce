// SPDX-License-Identifier: Apache-2.0
// ~/.ssh/config and /etc/ssh/ssh_config, as far as a launcher needs them.  [pure]
//
// The same rules as OpenSSH's: the first value obtained for a keyword stays, IdentityFile adds up,
// Host patterns may be negated, Match knows all, final, host, originalhost, user and localuser (a
// block with any other criterion is skipped: it can run a command). Keywords that neither change
// where a connection goes nor who is trusted are ignored; those that do and are not followed are
// noted, to be told. docs/reference/transports.md lists both.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

enum class HostKeyChecking {
  kYes,        // an unknown host is an error ("ask" too: horarun never prompts)
  kAcceptNew,  // an unknown host's key is added
  kNo,         // as accept-new; a changed key is an error all the same
};

// What the files say about one host; unset where they say nothing.
struct SshConfig {
  std::optional<std::string> hostname;
  std::optional<std::string> user;
  std::optional<int> port;
  std::vector<std::string> identity_files;  // "none" is kept out
  std::optional<bool> identities_only;
  std::optional<std::string> identity_agent;  // a socket, "none", or SSH_AUTH_SOCK
  std::optional<std::string> proxy_command;   // "none" switches it off
  std::optional<std::string> proxy_jump;
  std::optional<HostKeyChecking> host_key_checking;
  std::optional<std::vector<std::string>> user_known_hosts_files;
  std::optional<std::vector<std::string>> global_known_hosts_files;
  std::optional<std::string> host_key_alias;
  std::optional<int> connect_timeout_s;
  std::optional<std::string> address_family;  // any, inet, inet6
  std::optional<std::string> ciphers;
  std::optional<std::string> kex_algorithms;
  std::optional<std::string> macs;
  std::optional<std::string> host_key_algorithms;
  std::optional<std::string> pubkey_algorithms;
  std::optional<std::string> bind_address;
  std::optional<std::string> bind_interface;
  std::optional<std::string> revoked_host_keys;  // a file, or "none"
  std::optional<bool> pubkey_authentication;
  std::optional<std::string> preferred_authentications;
  std::vector<std::string> seen;          // keywords of that table whose first value counts
  std::vector<std::string> not_followed;  // what stands there and has no effect, as in the table
  int included = 0;                       // files that Include has led to so far
  bool too_many_included = false;         // an Include without end: the rest was not read
  friend bool operator==(const SshConfig&, const SshConfig&) = default;
};

// A keyword that matters and is not followed, for people.
struct UnfollowedKeyword {
  std::string_view name;      // "KnownHostsCommand", "Match exec"
  std::string_view harmless;  // a value by which it changes nothing
  std::string_view meaning;   // what is different from OpenSSH
};
std::span<const UnfollowedKeyword> unfollowed_keywords();

struct SshConfigQuery {
  std::string original_host;  // as the user wrote it
  std::string user;           // given outright (user@host); empty: none
  std::string local_user;
};

// The texts of the files that an Include pattern names, in order. Relative patterns are the
// caller's to place.
using SshConfigIncluder = std::function<std::vector<std::string>(const std::string& pattern)>;

// Reads one file's text into `config`; call for the user's file first, then for the system's.
void read_ssh_config(std::string_view text, const SshConfigQuery& query,
                     const SshConfigIncluder& include, SshConfig& config);

// "*" and "?"; the whole of `text` must match. No case is ignored but that of host names, which
// the caller lowers.
bool matches_pattern(std::string_view text, std::string_view pattern);

// Replaces %h (host name), %n (original host), %p (port), %r (remote user), %u (local user),
// %d (home), %% and, at the start, "~/". Unknown ones stay.
struct SshTokens {
  std::string host;
  std::string original_host;
  std::string port;
  std::string remote_user;
  std::string local_user;
  std::string home;
};
std::string expand_tokens(std::string_view text, const SshTokens& tokens);

}  // namespace hora::launcher
