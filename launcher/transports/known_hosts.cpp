// SPDX-License-Identifier: Apache-2.0
// Several launchers (and ssh itself) may write the same file, so an addition takes a lock, looks
// again and appends with a single write.
#include "launcher/transports/known_hosts.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "launcher/text/text.h"
#include "launcher/transports/ssh_keys.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/hmac.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

using Marker = KnownKey::Marker;

constexpr std::chrono::milliseconds kLockTimeout{2'000};
constexpr std::size_t kSaltBytes = 20;  // as many as a digest of SHA-1 has
constexpr std::string_view kLibsshTypes[] = {
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"};

// "*" and "?". fnmatch() would take the brackets of "[host]:2222" for a set of characters.
bool matches_wildcards(std::string_view text, std::string_view pattern) {
  std::size_t at = 0, in_pattern = 0, star = std::string_view::npos, resume = 0;
  while (at < text.size()) {
    const char wanted = in_pattern < pattern.size() ? pattern[in_pattern] : '\0';
    if (wanted == '*') {
      star = in_pattern++;
      resume = at;
    } else if (wanted == '?' || wanted == text[at]) {
      ++at;
      ++in_pattern;
    } else if (star != std::string_view::npos) {
      in_pattern = star + 1;
      at = ++resume;  // the last star takes one character more
    } else {
      return false;
    }
  }
  while (in_pattern < pattern.size() && pattern[in_pattern] == '*') ++in_pattern;
  return in_pattern == pattern.size();
}

// A negated pattern that matches rules the line out, wherever it stands.
bool matches_patterns(const std::string& name, std::string_view patterns) {
  bool matched = false;
  for (const std::string_view each : split(patterns, ',')) {
    const bool negated = each.starts_with('!');
    if (!matches_wildcards(name, lower_case(each.substr(negated ? 1 : 0)))) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

// "|1|SALT|HMAC-SHA1 of the name with the salt as its key": the only scheme that ssh has.
std::string hashed_name(std::string_view salt, std::string_view name) {
  return "|1|" + to_base64(salt) + "|" + to_base64(hmac_sha1(salt, name));
}

// `hosts` is the first field of a line; `name` is in lower case.
bool is_for(std::string_view hosts, const std::string& name) {
  if (!hosts.starts_with('|')) return matches_patterns(name, hosts);
  const auto parts = split(hosts, '|');
  if (parts.size() != 4 || parts[1] != "1") return false;
  const auto salt = from_base64(parts[2]);
  return salt && salt->size() == kSaltBytes && hashed_name(*salt, name) == hosts;
}

// Takes the first word off. ssh separates by blanks and tabs; a file that was written on Windows
// ends its lines with a carriage return.
std::string_view take_word(std::string_view& rest) {
  constexpr std::string_view kBlanks = " \t\r";
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  const std::string_view word = rest.substr(0, rest.find_first_of(kBlanks));
  rest.remove_prefix(word.size());
  return word;
}

Status lock_file(int fd, const std::string& file) {
  // flock has no timeout, so try again until the deadline.
  const auto lock = [fd] { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; };
  const int refused = os::retry_while_refused(lock, Clock::now() + kLockTimeout);
  if (refused == 0) return Ok{};
  if (refused != EWOULDBLOCK) return errno_error(refused, "locking " + file);
  return make_error(ErrorCode::kTimedOut, file + " is locked by another process");
}

}  // namespace

bool libssh_has_type(std::string_view type) {
  return std::find(std::begin(kLibsshTypes), std::end(kLibsshTypes), type) !=
         std::end(kLibsshTypes);
}

std::vector<KnownKey> lines_for(std::string_view known_hosts, const std::string& name,
                                const std::string& file) {
  std::vector<KnownKey> found;
  const std::string lower_name = lower_case(name);
  int number = 0;
  for (std::string_view rest : split(known_hosts, '\n')) {
    ++number;
    std::string_view hosts = take_word(rest);
    KnownKey line;
    if (hosts.starts_with('@')) {
      if (hosts != "@cert-authority" && hosts != "@revoked") continue;
      line.marker = hosts == "@revoked" ? Marker::kRevoked : Marker::kAuthority;
      hosts = take_word(rest);
    }
    if (hosts.empty() || hosts.starts_with('#') || !is_for(hosts, lower_name)) continue;
    line.type = std::string(take_word(rest));
    const auto key = from_base64(take_word(rest));
    if (!key || line.type.empty() || type_of_key(*key) != line.type) continue;
    line.key = *key;
    line.file = file;
    line.number = number;
    line.is_for_others = hosts.find_first_of("*?!,") != std::string_view::npos;
    found.push_back(std::move(line));
  }
  return found;
}

// The same order as ssh: a revoked key first, then a line with this very key, then one with
// another key, of any type. Only a host without a line for its full name is looked up without its
// port, and then only to be confirmed. A line of a type that libssh lacks counts, too: ssh programs
// that do not know the type skip it and take the host for a new one.
const KnownKey* KnownHost::line_about(std::string_view key) const {
  const KnownKey* other = nullptr;
  for (const auto* lines : {&keys, &plain}) {
    for (const KnownKey& each : *lines) {
      if (each.marker == Marker::kRevoked && each.key == key) return &each;
    }
  }
  for (const KnownKey& each : keys) {
    if (each.marker != Marker::kNone) continue;
    if (each.key == key) return &each;
    // One of its type is more useful than one of another.
    if (other == nullptr || each.type == type_of_key(key)) other = &each;
  }
  if (other != nullptr) return other;
  for (const KnownKey& each : plain) {
    if (each.marker == Marker::kNone && each.key == key) return &each;
  }
  return nullptr;
}

const KnownKey* KnownHost::authority() const {
  for (const auto* lines : {&keys, &plain}) {
    for (const KnownKey& each : *lines) {
      if (each.marker == Marker::kAuthority) return &each;
    }
  }
  return nullptr;
}

const KnownKey* KnownHost::foreign_key(std::string_view ssh_types) const {
  const auto types = split(ssh_types, ',');
  for (const KnownKey& each : keys) {
    if (each.marker == Marker::kNone && !libssh_has_type(each.type) &&
        std::find(types.begin(), types.end(), each.type) != types.end()) {
      return &each;
    }
  }
  return nullptr;
}

bool KnownHost::has_libssh_key() const {
  return std::any_of(keys.begin(), keys.end(), [](const KnownKey& each) {
    return each.marker == Marker::kNone && libssh_has_type(each.type);
  });
}

// A host that is known by its RSA key has to show that one, even if it has others that are
// preferred.
std::string KnownHost::in_order(std::string_view algorithms) const {
  std::vector<std::string> known, others;
  for (const std::string_view each : split(algorithms, ',')) {
    // All signatures of RSA are made with keys of one type.
    const std::string_view type = each.starts_with("rsa-sha2-") ? "ssh-rsa" : each;
    const bool is_known = std::any_of(keys.begin(), keys.end(), [type](const KnownKey& key) {
      return key.marker == Marker::kNone && key.type == type;
    });
    (is_known ? known : others).emplace_back(each);
  }
  known.insert(known.end(), others.begin(), others.end());
  return join(known, ",");
}

// Each file is read once for each host. Most have some hundred lines; ssh reads them as often.
KnownHost look_up_known_host(const SshHostKeyPolicy& policy, int port) {
  constexpr int kPortWithoutBrackets = 22;
  KnownHost host;
  const bool has_plain = !policy.is_alias && port != kPortWithoutBrackets;
  host.name = has_plain ? "[" + policy.known_as + "]:" + std::to_string(port) : policy.known_as;
  for (const std::string& file : policy.known_hosts_files) {
    const auto text = os::read_file(file);
    if (!text) continue;
    const auto add = [&](std::vector<KnownKey>& to, const std::string& name) {
      for (KnownKey& line : lines_for(*text, name, file)) to.push_back(std::move(line));
    };
    add(host.keys, host.name);
    if (has_plain) add(host.plain, policy.known_as);
  }
  return host;
}

std::string known_hosts_line(const std::string& name, std::string_view key, bool hash) {
  const std::string hosts =
      hash ? hashed_name(os::random_bytes(kSaltBytes), lower_case(name)) : lower_case(name);
  return hosts + " " + std::string(type_of_key(key)) + " " + to_base64(key);
}

Status add_known_host(const std::string& file, const std::string& name, std::string_view key,
                      bool hash) {
  (void)::mkdir(os::folder_of(file).c_str(), 0700);  // ~/.ssh usually exists already
  // O_APPEND: ssh takes no lock, so the position must be right even if it writes in between.
  const os::Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return errno_error(errno, "opening " + file);
  HORA_TRY(lock_file(fd.get(), file));
  auto text = os::read_to_end(fd.get(), file);
  if (!text) return std::move(text).error();
  // Another launcher may have added the line since the host's key was checked.
  for (const KnownKey& line : lines_for(*text, name, file)) {
    if (line.marker == Marker::kNone && line.key == key) return Ok{};
  }
  // A last line without a line feed would swallow the new one.
  const bool torn = !text->empty() && text->back() != '\n';
  const std::string line = (torn ? "\n" : "") + known_hosts_line(name, key, hash) + "\n";
  const ssize_t wrote = ::write(fd.get(), line.data(), line.size());
  if (wrote == static_cast<ssize_t>(line.size())) return Ok{};
  const int refused = wrote < 0 ? errno : ENOSPC;
  // Half a line might be taken for a key of its own.
  if (wrote > 0) (void)::ftruncate(fd.get(), static_cast<off_t>(text->size()));
  return errno_error(refused, "writing " + file);
}

}  // namespace hora::launcher
