// SPDX-License-Identifier: Apache-2.0
// Where a host is and how ssh gets into it: what options, configuration files and environment come
// to, one value per host.  [pure]
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/transports/ssh_config.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// How the connection is made.
struct SshRoute {
  std::chrono::milliseconds connect_timeout{10'000};
  std::vector<std::string> proxy;  // argv of a command that connects, instead of TCP; or empty
  std::string address_family;      // "", inet, inet6
  std::string bind_address, bind_interface;  // where the connection comes from; empty: anywhere
};

// What the user can log in with.
struct SshKeys {
  std::vector<std::string> files;    // that exist, in order of trial
  std::vector<std::string> missing;  // named, but not there: for the error text
  std::string agent_socket;          // empty: none
  bool use_agent = true;
  bool agent_first = true;   // ssh-agent before the files
  std::string forbidden_by;  // "PubkeyAuthentication no"; empty: keys may be used
};

// Which host keys are trusted.
struct SshHostKeyPolicy {
  std::string known_as;  // the name in known_hosts: the address, or HostKeyAlias
  HostKeyChecking checking = HostKeyChecking::kYes;
  std::vector<std::string> known_hosts_files;  // the user's first: new keys go into its first one
  std::size_t user_file_count = 0;
  std::string revoked_keys_file;  // keys of hosts that are refused; empty: none
};

// As ssh_config writes them; empty: ours.
struct SshAlgorithms {
  std::string ciphers, kex, macs, host_keys, public_keys;
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
  std::vector<std::string> not_followed;  // of the config: see unfollowed_keywords()

  // "host node3 (10.0.0.3:22)", with what is known of the address.
  std::string describe(const std::string& endpoint) const;
};

// The machine as the resolution sees it.
struct SshMachine {
  enum class FileKind { kNone, kFile, kPipe, kDirectory };
  std::string home;
  std::string local_user;    // empty: the account has no name
  std::string agent_socket;  // $SSH_AUTH_SOCK
  unsigned uid = 0;
  std::function<FileKind(const std::string& path)> kind_of;
};

// Follows OpenSSH's precedence: options, then `config`, then defaults. Errors: an option that names
// a key that is not there; an account without a name and a host without a user.
Result<SshTarget> resolve_ssh_target(const Host& host, const SshOptions& options,
                                     const SshConfig& config, const SshMachine& machine);

// "the identity file /x is not there"
Error missing_file(const std::string& what, const std::string& path, SshMachine::FileKind kind);

}  // namespace hora::launcher
