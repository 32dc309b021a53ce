// SPDX-License-Identifier: Apache-2.0
// Where a host is and how ssh reaches it: what `ssh -G` prints for it, as libssh takes it, or why
// the `ssh` program has to make the connection.  [pure]
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

enum class HostKeyChecking {
  kYes,        // an unknown host is an error ("ask" too: horarun never prompts)
  kAcceptNew,  // an unknown host's key is added
  kNo,         // as accept-new; a changed key is an error all the same
};

// How the connection is made.
struct SshRoute {
  std::optional<std::chrono::seconds> connect_timeout;  // unset: ours
  std::vector<std::string> proxy;  // argv of a command that connects, instead of TCP; or empty
  std::string address_family;      // "", inet, inet6
  bool compression = false;
};

// What the user can log in with.
struct SshKeys {
  // Identities of which the file or its ".pub" is there, in OpenSSH's order of trial.
  std::vector<std::string> files;
  std::vector<std::string> missing;  // named, but not there: for the error text
  std::string agent_socket;          // empty: none
  bool identities_only = false;      // of the agent's keys only those of `files`
  std::string forbidden_by;          // "pubkeyauthentication no"; empty: keys may be used
  // Methods that the configuration allows and only the ssh program has: gssapi-with-mic.
  std::vector<std::string> program_methods;
};

// Which host keys are trusted.
struct SshHostKeyPolicy {
  std::string known_as;   // the name in known_hosts: the address, or HostKeyAlias
  bool is_alias = false;  // HostKeyAlias: it is looked up without the port
  HostKeyChecking checking = HostKeyChecking::kYes;
  std::vector<std::string> known_hosts_files;  // the user's first: new keys go into its first one
  std::size_t user_file_count = 0;
  bool hash_names = false;  // HashKnownHosts: of keys that are added
};

// The plain lists, in the order of preference. libssh takes what it knows of them. Empty: its own.
struct SshAlgorithms {
  std::string ciphers, kex, macs, host_keys, public_keys;
  int rsa_bits = 0;  // RequiredRSASize; 0: libssh's
};

struct SshTarget {
  std::string name;     // as the user wrote it
  std::string address;  // what to resolve
  int port = 22;
  std::string user;
  SshRoute route;
  SshKeys keys;
  SshHostKeyPolicy host_keys;
  SshAlgorithms algorithms;
  // What libssh cannot do of the configuration: the ssh program makes the connection. Empty:
  // libssh.
  std::string program_reason;
  // Why no connection is tried: ssh's error about the configuration. Empty: it is tried.
  std::string problem;
  // There is no ssh program: libssh reads this file ("": the usual ones) when it connects.
  std::optional<std::string> libssh_config;

  // "host node3 (10.0.0.3:22)", with what is known of the address.
  std::string describe(const std::string& endpoint) const;
};

// The options of horarun as ssh has them, for every host.
std::vector<std::string> ssh_arguments(const SshOptions& options);

// The output of `ssh -G`: keywords in lower case, and the values that each has.
using SshSettings = std::map<std::string, std::vector<std::string>, std::less<>>;
SshSettings parse_ssh_settings(std::string_view text);

// What the resolution asks of this machine.
struct SshMachine {
  enum class FileKind { kNone, kFile, kPipe, kDirectory };
  std::string home;
  std::string host_name;
  std::string local_user;  // empty: the account has no name
  std::string shell;       // that runs proxy commands
  unsigned uid = 0;
  std::function<FileKind(const std::string& path)> kind_of;
  std::function<bool(const std::string& socket)> listens;  // something takes connections there
  std::function<std::optional<std::string>(const std::string& name)> variable;
  std::function<bool()> may_have_ticket;  // of Kerberos
};

// `settings` are those of the host, `defaults` those without any configuration: an unknown setting
// that differs from its default is a reason for the ssh program.
SshTarget resolve_ssh_target(const Host& host, const SshOptions& options,
                             const SshSettings& settings, const SshSettings& defaults,
                             const SshMachine& machine);

}  // namespace hora::launcher
