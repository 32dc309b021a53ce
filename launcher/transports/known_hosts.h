// SPDX-License-Identifier: Apache-2.0
// known_hosts files by OpenSSH's look-up rules. Keys are in their wire format, which begins with
// their type. Any thread may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/transports/ssh_target.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// A line of a known_hosts file that is for the host.
struct KnownKey {
  enum class Marker { kNone, kAuthority, kRevoked };
  Marker marker = Marker::kNone;
  std::string type;  // "ssh-ed25519"
  std::string key;
  std::string file;
  int number = 0;              // of the line
  bool is_for_others = false;  // it names more than one host, or has wildcards
  friend bool operator==(const KnownKey&, const KnownKey&) = default;
};

// The lines of a known_hosts text that are for `name`: plain, wildcard and negated patterns, or a
// hash. As in ssh, a line that cannot be parsed is skipped.
std::vector<KnownKey> lines_for(std::string_view known_hosts, const std::string& name,
                                const std::string& file);

// The entries of one host in the known_hosts files.
struct KnownHost {
  std::string name;             // in its lines: "node3", "[node3]:2222", the alias
  std::vector<KnownKey> keys;   // the lines for that name
  std::vector<KnownKey> plain;  // those for the host without its port, where the name has one

  // The line that decides about a key; null if there is none.
  const KnownKey* line_about(std::string_view key) const;
  // The first line of an authority whose certificates vouch for the host; null: there is none.
  const KnownKey* authority() const;
  // The first key of a type that this machine's ssh accepts (`ssh_types`: a list of algorithms) and
  // libssh may lack; null: there is none.
  const KnownKey* foreign_key(std::string_view ssh_types) const;
  bool has_libssh_key() const;  // of a type that libssh has
  // `algorithms` with those first for which a key is known, as ssh offers them.
  std::string in_order(std::string_view algorithms) const;
};

KnownHost look_up_known_host(const SshHostKeyPolicy& policy, int port);

// A line for `name`, which is hashed if `hash` is set.
std::string known_hosts_line(const std::string& name, std::string_view key, bool hash);

// Adds a line for `name` to `file`, unless the key is in it by now, and makes the file if needed.
// One writer at a time, other processes included; waits for another one for at most 2 s.
Status add_known_host(const std::string& file, const std::string& name, std::string_view key,
                      bool hash);

// The types that every libssh and every ssh can use. Of the others (security keys, DSA,
// post-quantum ones) it depends on the version.
bool libssh_has_type(std::string_view type);

}  // namespace hora::launcher
