// SPDX-License-Identifier: Apache-2.0
// Ownership of temporary entries in a cache that several hosts may share over a network file
// system. On the same host a lock proves that the owner lives; across hosts only the age can tell.
#include "launcher/agent/cache_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include <sha256.h>  // libmd

#include "launcher/agent/host_facts.h"
#include "launcher/agent/remove_tree.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// Each attempt fails only if another agent removes the new entry in the moment before it is locked.
constexpr int kAttempts = 16;
constexpr std::string_view kNowhere = "0000000000000000";

// A user who can write to the parent directory can replace ours, unless the parent is sticky like
// /tmp. Members of the directory's group are trusted, as umask 002 intends.
Status check_parent(int directory, const std::string& path) {
  struct stat info {};
  if (::fstatat(directory, "..", &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno_error(errno, "reading the folder above " + path);
  }
  if ((info.st_mode & S_IWOTH) == 0 || (info.st_mode & S_ISVTX) != 0) return Ok{};
  return make_error(ErrorCode::kDenied, "the folder above " + path +
                                            " can be written by every user, and is not sticky");
}

// Identifies the view of the file system: two processes with equal values share locks, because they
// share one kernel and one mount. The host name distinguishes machines that were resumed from one
// image and have the same boot id.
std::string name_this_view(dev_t device) {
  const auto boot = os::read_file("/proc/sys/kernel/random/boot_id");
  if (!boot || boot->empty()) return {};
  const std::string text = *boot + host_name() + '\n' + std::to_string(device);
  std::array<char, SHA256_DIGEST_STRING_LENGTH> digest;
  SHA256Data(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), digest.data());
  return {digest.data(), kTagSize};
}

// The prefixes that this directory gives to everything that is not an entry.
bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool is_temporary(std::string_view name) {
  if (starts_with(name, kNotePrefix)) {
    // A note's final name is PREFIX HASH; a dot follows while a process writes it.
    return name.find('.', kNotePrefix.size()) !=
           std::string_view::npos;  // one that is being written
  }
  return starts_with(name, kIncomingPrefix) || starts_with(name, kUsePrefix) ||
         starts_with(name, kShippedPrefix);
}

// The view's identifier inside a temporary name; see name_this_view().
std::string_view place_in(std::string_view name) {
  for (const std::string_view prefix : {kIncomingPrefix, kUsePrefix}) {
    if (starts_with(name, prefix)) return name.substr(prefix.size(), kTagSize);
  }
  return {};
}

}  // namespace

Result<CacheDirectory> CacheDirectory::open(const std::string& path) {
  // Another user of /tmp could have put a symbolic link in the last component.
  os::Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return errno_error(errno, "opening " + path);
  struct stat info {};
  if (::fstat(directory.get(), &info) != 0) return errno_error(errno, "reading " + path);
  if (info.st_uid != ::geteuid()) {
    return make_error(ErrorCode::kDenied, path + " belongs to another user");
  }
  HORA_TRY(check_parent(directory.get(), path));
  // An older umask may have left the directory open to others; close it instead of refusing it.
  constexpr mode_t kOthers = 077;
  if ((info.st_mode & kOthers) != 0 && ::fchmod(directory.get(), 0700) != 0) {
    return errno_error(errno, "closing " + path + " to other users");
  }
  return CacheDirectory(path, std::move(directory), name_this_view(info.st_dev));
}

Result<std::vector<std::string>> CacheDirectory::names() const {
  os::Fd listing(::openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::unique_ptr<DIR, int (*)(DIR*)> stream(listing.valid() ? ::fdopendir(listing.get()) : nullptr,
                                             ::closedir);
  if (!stream) return errno_error(errno, "reading " + path_);
  // closedir() closes the descriptor from now on.
  listing.release();
  std::vector<std::string> found;
  errno = 0;
  while (const dirent* item = ::readdir(stream.get())) {
    const std::string_view name(item->d_name);
    if (name != "." && name != "..") found.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return errno_error(errno, "reading " + path_);
  return found;
}

std::string CacheDirectory::temporary_name(std::string_view prefix) const {
  return std::string(prefix) + (here_.empty() ? std::string(kNowhere) : here_) + "-" +
         os::random_token().substr(0, kTagSize);
}

Result<CacheDirectory::Held> CacheDirectory::make_held(
    std::string_view prefix, std::string_view suffix,
    const std::function<Status(const std::string&)>& announce) const {
  // Another agent may take the new entry for an abandoned one and remove it until it is locked.
  // So announce, create, open, lock, and then check that the name still leads to something.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = temporary_name(prefix).append(suffix);
    HORA_TRY(announce(entry_path(name)));
    if (::mkdirat(fd(), name.c_str(), 0700) != 0) {
      return errno_error(errno, "creating " + entry_path(name));
    }
    os::Fd made(::openat(fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    // It was removed already: another attempt under another name.
    if (!made.valid() && errno == ENOENT) continue;
    if (!made.valid()) {
      const int errnum = errno;
      ::unlinkat(fd(), name.c_str(), AT_REMOVEDIR);
      return errno_error(errnum, "opening " + entry_path(name));
    }
    // On a file system without locks, no agent on this host treats the entry as abandoned either.
    if (::flock(made.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::unlinkat(fd(), name.c_str(), AT_REMOVEDIR);  // for an agent that only looked at it
      continue;
    }
    struct stat info {};
    if (::fstatat(fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      return Held{name, std::move(made)};
    }
    if (errno != ENOENT) return errno_error(errno, "reading " + entry_path(name));
  }
  return make_error(ErrorCode::kUnavailable, "somebody removes what is made in " + path_);
}

// Taking the lock proves that the owner is gone; failing with EWOULDBLOCK proves that it lives. Any
// other case, another host above all, falls back to the age.
CacheDirectory::Owner CacheDirectory::owner_of(const std::string& name) const {
  Owner owner;
  const std::string_view place = place_in(name);
  if (!here_.empty() && place == here_) {
    os::Fd lock(::openat(fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const bool locked = lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
    owner.here = locked || (lock.valid() && errno == EWOULDBLOCK);
    owner.gone = locked;
    if (locked) owner.lock = std::move(lock);
    if (owner.here) return owner;
  }
  const auto touched = touched_at(name);
  if (!touched) return owner;
  // The owners renew their marks, so an old one has lost its owner.
  if (const auto today = now()) owner.age_s = *today - *touched;
  owner.gone = owner.age_s && *owner.age_s > kAbandonedAfterS;
  return owner;
}

std::optional<time_t> CacheDirectory::now() const {
  struct stat info {};
  if (::futimens(fd(), nullptr) != 0 || ::fstat(fd(), &info) != 0) return std::nullopt;
  return info.st_mtim.tv_sec;
}

void CacheDirectory::touch(const std::string& name) const {
  (void)::utimensat(fd(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

std::optional<time_t> CacheDirectory::touched_at(const std::string& name) const {
  struct stat info {};
  if (::fstatat(fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info.st_mtim.tv_sec;
}

void CacheDirectory::remove_debris() const {
  const auto found = names();
  if (!found) return;
  for (const std::string& name : *found) {
    if (!is_temporary(name)) continue;
    if (const Owner owner = owner_of(name); owner.gone) (void)remove_tree(entry_path(name));
  }
}

}  // namespace hora::launcher
