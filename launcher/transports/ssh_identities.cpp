// SPDX-License-Identifier: Apache-2.0
// Reads key files without libssh, which ignores types that it does not know, and cannot compare a
// private key that has a passphrase with one of the agent.
#include "launcher/transports/ssh_identities.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "launcher/transports/known_hosts.h"
#include "launcher/transports/ssh_wire.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kLargestKey = 1u << 20;
constexpr std::string_view kPublicEnding = ".pub";

struct KeyFile {
  std::string text;
  bool exposed = false;  // others than its owner, who is this user, may read or write it
};

// Nothing for what is not a regular file: a named pipe would be waited for.
std::optional<KeyFile> read_key_file(const std::string& path) {
  const os::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  auto text = os::read_to_end(fd.get(), path, kLargestKey);
  if (!text) return std::nullopt;
  constexpr unsigned kOthers = S_IRWXG | S_IRWXO;
  return KeyFile{*std::move(text), status.st_uid == ::getuid() && (status.st_mode & kOthers) != 0};
}

// Every format of a private key is in an armour that begins so.
bool is_private(std::string_view text) { return text.starts_with("-----BEGIN "); }

// The identity in one named file.
struct NamedKey {
  std::string path;
  std::string key;  // empty: unknown
  bool has_private = false;
  bool exposed = false;
};

// The private file shows its public half only in OpenSSH's own format; the ".pub" next to it does
// for the others, and where the private half is in the agent alone (1Password, a YubiKey).
std::optional<NamedKey> look_at(const std::string& path) {
  NamedKey named{path, {}, false, false};
  const auto file = read_key_file(path);
  const auto public_file = read_key_file(path + std::string(kPublicEnding));
  if (!file && !public_file) return std::nullopt;
  if (file) {
    named.key = public_key_in(file->text);
    named.has_private = is_private(file->text);
    named.exposed = file->exposed;
  }
  if (named.key.empty() && public_file) named.key = public_key_in(public_file->text);
  return named;
}

class Planner {
 public:
  Planner(const SshKeys& keys, std::string_view algorithms)
      : keys_(keys), algorithms_(algorithms) {}

  // OpenSSH's order: the named keys that the agent has, its others, and the files.
  SshIdentities plan() {
    list_agent();
    std::vector<NamedKey> named;
    for (const auto* paths : {&keys_.files, &keys_.missing}) {
      for (const std::string& path : *paths) {
        if (auto key = look_at(path)) {
          named.push_back(*std::move(key));
        } else {
          plan_.unusable.push_back(path + " (missing)");
        }
      }
    }
    // ssh uses the agent's order here, and that of the configuration below.
    for (const AgentKey& each : agent_) {
      const auto is_named = [&each](const NamedKey& one) { return one.key == each.key; };
      const auto found = std::find_if(named.begin(), named.end(), is_named);
      if (found != named.end()) add_from_agent(each, found->path);
    }
    if (!keys_.identities_only) {
      for (const AgentKey& each : agent_) add_from_agent(each, each.comment);
    }
    for (const NamedKey& each : named) add_file(each);
    return std::move(plan_);
  }

 private:
  void list_agent() {
    if (keys_.agent_socket.empty()) return;
    auto listed = list_agent_keys(keys_.agent_socket);
    const std::string problem = !listed           ? listed.error().message
                                : listed->empty() ? "it has no keys"
                                                  : "";
    if (!problem.empty()) {
      plan_.unusable.push_back("ssh-agent (" + keys_.agent_socket + ": " + problem + ")");
    } else {
      agent_ = *std::move(listed);
    }
  }

  void add_from_agent(const AgentKey& key, const std::string& called) {
    if (is_planned(key.key)) return;
    const std::string name = called + " of ssh-agent";
    if (is_excluded(name, key.key) || is_foreign(name, key.key)) return;
    plan_.usable.push_back({SshIdentity::Source::kAgent, name, key.key, key.comment});
  }

  // As in ssh, a key that others may read is not used: it counts as given away.
  void add_file(const NamedKey& named) {
    if (is_planned(named.key) || is_excluded(named.path, named.key)) return;
    if (is_foreign(named.path, named.key)) return;
    if (!named.has_private) {
      plan_.unusable.push_back(named.path + " (the private key is neither there nor in ssh-agent)");
    } else if (named.exposed) {
      plan_.unusable.push_back(named.path + " (ignored: others may read it; chmod 600)");
    } else {
      plan_.usable.push_back({SshIdentity::Source::kFile, named.path, named.key, {}});
    }
  }

  // libssh would leave such a key out as well, and would not say so. RSA keys sign by three
  // algorithms.
  bool is_excluded(const std::string& name, const std::string& key) {
    const std::string_view type = type_of_key(key);
    if (type.empty() || algorithms_.empty() || !libssh_has_type(type)) return false;
    for (const std::string_view each : split(algorithms_, ',')) {
      if (each == type || (type == "ssh-rsa" && each.starts_with("rsa-sha2-"))) return false;
    }
    plan_.unusable.push_back(name + " (PubkeyAcceptedAlgorithms has no " + std::string(type) + ")");
    return true;
  }

  // Whether it is of a type that libssh may lack. It is not dropped: the ssh program may have it.
  bool is_foreign(const std::string& name, const std::string& key) {
    if (key.empty() || libssh_has_type(type_of_key(key))) return false;
    plan_.foreign.push_back({name, std::string(type_of_key(key))});
    return true;
  }

  // No server is to see one key twice: each refusal counts.
  bool is_planned(const std::string& key) const {
    return !key.empty() && std::any_of(plan_.usable.begin(), plan_.usable.end(),
                                       [&key](const SshIdentity& each) { return each.key == key; });
  }

  const SshKeys& keys_;
  const std::string_view algorithms_;
  std::vector<AgentKey> agent_;
  SshIdentities plan_;
};

}  // namespace

std::string public_key_in(std::string_view text) {
  constexpr std::string_view kBegin = "-----BEGIN OPENSSH PRIVATE KEY-----";
  constexpr std::string_view kMagic{"openssh-key-v1\0", 15};
  if (text.starts_with(kBegin)) {
    text.remove_prefix(kBegin.size());
    const auto bytes = from_base64(text.substr(0, text.find('-')));
    if (!bytes || !bytes->starts_with(kMagic)) return {};
    // Cipher, its key derivation and the options of that; a count of keys; the public one.
    std::string_view rest = std::string_view(*bytes).substr(kMagic.size());
    for (int i = 0; i < 3; ++i) (void)take_ssh_string(rest);
    (void)take_ssh_number(rest);
    return std::string(take_ssh_string(rest).value_or(""));
  }
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(trim(line), ' ');
    if (words.size() < 2) continue;
    const auto key = from_base64(words[1]);
    if (key && !words[0].empty() && type_of_key(*key) == words[0]) return *key;
  }
  return {};
}

SshIdentities plan_identities(const SshKeys& keys, std::string_view algorithms) {
  return Planner(keys, algorithms).plan();
}

}  // namespace hora::launcher
