// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/own_image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <string_view>
#include <utility>

#include "launcher/protocol/delivery.h"
#include "launcher/store/directories.h"
#include "launcher/store/file_unpacker.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

// A cached agent is named after its SHA-256. Before it does anything, it checks that its bytes
// still match, since a bad disk or another user may have changed them. Hashing takes a few
// milliseconds, so a note next to the file remembers the last check.

namespace {

constexpr char kProgram[] = "/proc/self/exe";
// readlink() appends this when the file was replaced or removed.
constexpr std::string_view kDeleted = " (deleted)";
constexpr std::size_t kHashDigits = 64;

bool is_sha256(std::string_view text) { return text.size() == kHashDigits && is_hash(text); }

// Changes whenever someone writes to the file or replaces it. ctime cannot be set by a user.
std::string fingerprint(const struct stat& info) {
  std::array<char, 256> text;
  const int size = std::snprintf(
      text.data(), text.size(), "%llu %llu %lld %lld.%09ld %lld.%09ld\n",
      static_cast<unsigned long long>(info.st_dev), static_cast<unsigned long long>(info.st_ino),
      static_cast<long long>(info.st_size), static_cast<long long>(info.st_mtim.tv_sec),
      info.st_mtim.tv_nsec, static_cast<long long>(info.st_ctim.tv_sec), info.st_ctim.tv_nsec);
  return {text.data(), static_cast<std::size_t>(size)};
}

std::string note_path(const std::string& path, const std::string& hash) {
  return path.substr(0, path.rfind('/') + 1).append(kNotePrefix) + hash;
}

// A note of another user proves nothing.
bool is_noted(const std::string& note, const std::string& print) {
  const os::Fd file(::open(note.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0 || info.st_uid != ::geteuid()) return false;
  std::array<char, 256> text;
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  return got > 0 && std::string_view(text.data(), static_cast<std::size_t>(got)) == print;
}

// The kernel's timestamps advance in steps of up to 10 ms: for a file that was changed just now, an
// equal timestamp later does not prove that it was not changed again.
bool is_settled(const struct stat& info) {
  constexpr long long kSettleNs = 50'000'000;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const long long age = (static_cast<long long>(now.tv_sec) - info.st_ctim.tv_sec) * 1'000'000'000 +
                        (now.tv_nsec - info.st_ctim.tv_nsec);
  return age > kSettleNs;
}

// Failing to write a note costs the next start a few milliseconds, nothing more.
void take_note(const std::string& note, const std::string& print) {
  // A random name: another host that shares the directory may have the same process id.
  const std::string temporary = note + "." + os::random_token().substr(0, kTagSize);
  const os::Fd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return;
  const bool whole =
      ::write(file.get(), print.data(), print.size()) == static_cast<ssize_t>(print.size());
  if (!whole || ::rename(temporary.c_str(), note.c_str()) != 0) ::unlink(temporary.c_str());
}

// Removes the bad file, so that the next start ships a good one, but only if the name still leads
// to the file that was checked.
Error refused(const std::string& path, const struct stat& own, const std::string& why) {
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0 && there.st_dev == own.st_dev &&
      there.st_ino == own.st_ino) {
    ::unlink(path.c_str());
  }
  return make_error(ErrorCode::kDenied, path + " " + why + "; it is removed");
}

}  // namespace

// Any other name (a developer's build, the local agent) promises no hash and returns an empty one.
Result<std::string> verify_image(const std::string& path, const std::string& program) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.compare(0, kAgentPrefix.size(), kAgentPrefix) != 0 ||
      !is_sha256(name.substr(kAgentPrefix.size()))) {
    return std::string();
  }
  const std::string hash = name.substr(kAgentPrefix.size());
  struct stat own {};
  if (::stat(program.c_str(), &own) != 0) return errno_error(errno, "reading " + program);
  if (own.st_uid != ::geteuid()) return refused(path, own, "belongs to another user");
  constexpr mode_t kOthersWrite = 022;
  if ((own.st_mode & kOthersWrite) != 0) return refused(path, own, "can be written by other users");
  const std::string note = note_path(path, hash);
  const std::string print = fingerprint(own);
  if (is_noted(note, print)) return hash;
  auto found = sha256_of_file(program);
  if (!found) return std::move(found).error();
  if (*found != hash) return refused(path, own, "is damaged: its SHA-256 is " + *found);
  if (is_settled(own)) take_note(note, print);
  return hash;
}

Result<std::string> verify_own_image() {
  std::array<char, PATH_MAX> target;
  const ssize_t size = ::readlink(kProgram, target.data(), target.size());
  if (size <= 0 || size == static_cast<ssize_t>(target.size())) return std::string();
  std::string path(target.data(), static_cast<std::size_t>(size));
  if (path.size() > kDeleted.size() &&
      path.compare(path.size() - kDeleted.size(), kDeleted.size(), kDeleted) == 0) {
    path.resize(path.size() - kDeleted.size());
  }
  return verify_image(path, kProgram);
}

}  // namespace hora::launcher
