// Where a host really is and how to get in: the options, ~/.ssh/config and the environment, read
// into one value per host.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/transports/ssh_config.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct SshTarget {
  std::string name;     // as the user wrote it
  std::string address;  // what to resolve
  int port = 22;
  std::string user;
  std::string known_as;                     // the name in known_hosts: the address, or HostKeyAlias
  std::vector<std::string> identity_files;  // that exist, in order of trial
  bool agent_first = true;                  // ssh-agent before the files
  bool use_agent = true;
  std::string agent_socket;                     // empty: none
  std::vector<std::string> missing_identities;  // named, but not there: for the error text
  HostKeyChecking checking = HostKeyChecking::kYes;
  std::vector<std::string> known_hosts_files;  // the user's first: new keys go into its first one
  std::size_t user_known_hosts_count = 0;
  std::chrono::milliseconds connect_timeout{10'000};
  std::vector<std::string> proxy;  // argv of a command that connects, instead of TCP; or empty
  std::string address_family;      // "", inet, inet6
  std::string ciphers, kex_algorithms, macs, host_key_algorithms, pubkey_algorithms;  // empty: ours
  std::string bind_address, bind_interface;  // where the connection comes from; empty: anywhere
  std::string revoked_keys_file;             // keys of hosts that are refused; empty: none
  std::string keys_forbidden_by;             // "PubkeyAuthentication no"; empty: keys may be used
  std::vector<std::string> not_followed;     // of the config: see unfollowed_keywords()

  // "node3 (10.0.0.3:22)", with what is known of the address.
  std::string describe(const std::string& endpoint) const;
};

// Reads the config files once and answers for every host. Thread-safe.
class SshTargets {
 public:
  explicit SshTargets(SshOptions options);

  // Errors: an option that names a file that is not there.
  Result<SshTarget> target_of(const Host& host) const;

 private:
  std::vector<std::string> include(const std::string& pattern, bool of_user) const;

  SshOptions options_;
  std::string home_;
  std::string local_user_;
  std::string user_config_;
  std::string system_config_;
  Status given_config_ = Ok{};  // whether --ssh-config-file could be read
};

}  // namespace hora::launcher
