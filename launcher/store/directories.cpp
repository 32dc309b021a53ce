// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/directories.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <sha256.h>  // libmd

#include "rendezvous/net/addresses.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

// Removes a tree relative to open directories and never follows a symbolic link, so nothing outside
// the tree can be removed even if the tree changes meanwhile.

namespace {

// Returns 0, or the errno of the first failure; continues after a failure.
int remove_entry(int parent, const char* name);

int remove_contents(os::Fd directory) {
  const int fd = directory.get();
  // closedir() closes the descriptor.
  DIR* stream = ::fdopendir(directory.release());
  if (stream == nullptr) return errno;
  int first = 0;
  while (const dirent* item = ::readdir(stream)) {
    const std::string_view name(item->d_name);
    if (name == "." || name == "..") continue;
    const int errnum = remove_entry(fd, item->d_name);
    if (first == 0) first = errnum;
  }
  ::closedir(stream);
  return first;
}

int remove_entry(int parent, const char* name) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return 0;
  // Linux reports EISDIR for a directory; POSIX allows EPERM.
  if (errno != EISDIR && errno != EPERM) return errno;
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  os::Fd directory(::openat(parent, name, kFlags));
  // The user's program may have removed its own permissions.
  if (!directory.valid() && errno == EACCES && ::fchmodat(parent, name, 0700, 0) == 0) {
    directory = os::Fd(::openat(parent, name, kFlags));
  }
  if (!directory.valid()) return errno;
  ::fchmod(directory.get(), 0700);
  const int errnum = remove_contents(std::move(directory));
  if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
  // The first failure inside explains why the directory is not empty.
  return errnum != 0 ? errnum : errno;
}

}  // namespace

Status remove_tree(const std::string& path) {
  const int errnum = remove_entry(AT_FDCWD, path.c_str());
  if (errnum != 0) return errno_error(errnum, "removing " + path);
  return Ok{};
}

// A private directory for the job's files. It is announced to the shim before it exists, so that it
// is removed even after a kill at any moment.

namespace {

bool lets_programs_run(const std::string& directory) {
  struct statvfs system {};
  return ::statvfs(directory.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) == 0;
}

}  // namespace

Result<JobDirectory> JobDirectory::create(std::function<Status(const std::string&)> announce) {
  std::vector<std::string> parents;
  const char* temporary = std::getenv("TMPDIR");
  if (temporary != nullptr && temporary[0] == '/') parents.emplace_back(temporary);
  parents.insert(parents.end(), {"/tmp", "/var/tmp", "/dev/shm"});
  // Shipped programs have to run, and /tmp is often mounted noexec. If all are, data can still be
  // sent.
  // Stable: among equals, the user's TMPDIR stays first.
  std::stable_partition(parents.begin(), parents.end(), lets_programs_run);
  const std::string name = "/hora-job-" + os::random_token().substr(0, 16);
  std::string reasons;
  for (const std::string& parent : parents) {
    const std::string path = parent + name;
    HORA_TRY(announce(path));
    // mkdir fails on a name that exists, even if it is another user's symbolic link.
    if (::mkdir(path.c_str(), 0700) == 0) return JobDirectory(path, std::move(announce));
    if (!reasons.empty()) reasons += "; ";
    reasons += errno_error(errno, "creating " + path).message;
  }
  // Nothing was made, so nothing is left to remove.
  HORA_TRY(announce(""));
  return make_error(ErrorCode::kDenied, reasons);
}

JobDirectory::JobDirectory(JobDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), announce_(std::move(other.announce_)) {}

JobDirectory::~JobDirectory() {
  if (path_.empty()) return;
  // If the removal fails the announcement stays, and the shim tries again.
  if (remove_tree(path_)) (void)announce_("");
}

// The same list in the same order as the bootstrap script has, so that the agent continues where
// the script stopped.

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::vector<std::string> cache_places() {
  std::string home = variable("XDG_CACHE_HOME");
  if (home.empty() && !variable("HOME").empty()) home = variable("HOME") + "/.cache";
  std::string temporary = variable("TMPDIR");
  if (temporary.empty()) temporary = "/tmp";
  const std::string own = "/hora-" + std::to_string(::geteuid());
  std::vector<std::string> places;
  if (!home.empty()) places.push_back(home + "/hora");
  places.push_back(temporary + own);
  places.push_back("/dev/shm" + own);
  // A relative XDG_CACHE_HOME or TMPDIR would depend on the working directory; ignore it.
  places.erase(std::remove_if(places.begin(), places.end(),
                              [](const std::string& path) { return path.front() != '/'; }),
               places.end());
  return places;
}

// The script found the earlier places unusable, so the search begins at the one that worked.
std::vector<std::string> cache_places_from(const std::string& first) {
  std::vector<std::string> places = cache_places();
  const auto found = std::find(places.begin(), places.end(), first);
  if (found == places.end()) return {first};
  places.erase(places.begin(), found);
  return places;
}

// Ownership of temporary entries in a cache that several hosts may share over a network file
// system. On the same host a lock proves that the owner lives; across hosts only the age decides.

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
  const std::string text = *boot + net::host_name() + '\n' + std::to_string(device);
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

Result<CacheDirectory::LockedDirectory> CacheDirectory::make_held(
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
      return LockedDirectory{name, std::move(made)};
    }
    if (errno != ENOENT) return errno_error(errno, "reading " + entry_path(name));
  }
  return make_error(ErrorCode::kUnavailable, "another process removes what is made in " + path_);
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
