// SPDX-License-Identifier: Apache-2.0
// Several launchers (and ssh itself) may write the same file, so
// an addition takes a lock, looks again and appends with a single write.
#include "launcher/transports/known_hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

constexpr std::chrono::milliseconds kLockPatience{2'000};

Status lock_file(int fd, const std::string& file) {
  const auto deadline = Clock::now() + kLockPatience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno_error(errno, "locking " + file);
    if (Clock::now() >= deadline) {
      return make_error(ErrorCode::kTimedOut, file + " is locked by another process");
    }
    // flock has no timeout, so try again until the deadline.
    ::poll(nullptr, 0, 5);
  }
  return Ok{};
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text + "\n").find("\n" + line + "\n") != std::string::npos;
}

// "*" and "?"; the whole of `text` must match.
bool matches_pattern(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0;
  std::size_t star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++t;
      ++p;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view key_of(std::string_view entry) { return entry.substr(entry.rfind(' ') + 1); }

}  // namespace

// Compares the key in base64 alone: a key is revoked whatever host names the line gives.
bool marks_as_revoked(std::string_view known_hosts, std::string_view entry) {
  const std::string_view key = key_of(entry);
  if (key.empty()) return false;
  for (const std::string_view line : split(known_hosts, '\n')) {
    if (line.starts_with("@revoked") && line.find(key) != std::string_view::npos) return true;
  }
  return false;
}

// A binary KRL ("SSHKRL") cannot be parsed, so it counts as unreadable. An entry without a key
// counts as revoked: what was not compared is not cleared.
Revocation look_up_revoked(std::string_view revoked_keys, std::string_view entry) {
  if (revoked_keys.starts_with("SSHKRL")) return Revocation::kUnreadable;
  const std::string_view key = key_of(entry);
  const bool cleared = !key.empty() && revoked_keys.find(key) == std::string_view::npos;
  return cleared ? Revocation::kNotRevoked : Revocation::kRevoked;
}

Status add_known_host(const std::string& file, const std::string& entry) {
  const std::size_t slash = file.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    // ~/.ssh usually exists already.
    (void)::mkdir(file.substr(0, slash).c_str(), 0700);
  }
  // O_APPEND: ssh takes no lock, so the position must be right even if it writes in between.
  const os::Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error(errno, "opening " + file);
  HORA_TRY(lock_file(fd.get(), file));
  auto text = os::read_to_end(fd.get(), file);
  if (!text) return std::move(text).error();
  // Another launcher may have added the line since the host's key was checked.
  if (has_line(*text, entry)) return Ok{};
  // A last line without a line feed would swallow the new one.
  const bool torn = !text->empty() && text->back() != '\n';
  const std::string line = (torn ? "\n" : "") + entry + "\n";
  const ssize_t wrote = ::write(fd.get(), line.data(), line.size());
  if (wrote != static_cast<ssize_t>(line.size())) {
    return errno_error(wrote < 0 ? errno : ENOSPC, "writing " + file);
  }
  return Ok{};
}

// OpenSSH writes a name with a non-default port as [host]:port; an authority may use either form.
std::string file_with_authority(const std::vector<std::string>& files, const std::string& host,
                                int port) {
  const std::string with_port = "[" + host + "]:" + std::to_string(port);
  for (const std::string& file : files) {
    const auto text = os::read_file(file);
    if (!text) continue;
    for (const std::string_view line : split(*text, '\n')) {
      constexpr std::string_view kMarker = "@cert-authority ";
      if (line.substr(0, kMarker.size()) != kMarker) continue;
      const std::string_view rest = trim(line.substr(kMarker.size()));
      for (const std::string_view pattern : split(rest.substr(0, rest.find(' ')), ',')) {
        if (matches_pattern(host, pattern) || matches_pattern(with_port, pattern)) return file;
      }
    }
  }
  return {};
}

}  // namespace hora::launcher
