#include "launcher/agent/bundle_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/remove_tree.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// Dot files: no entry is named so. The manifest lies in the entry and lists what must be there.
constexpr std::string_view kTemporaryPrefix = ".incoming-";
constexpr char kManifest[] = ".hora-manifest";
constexpr std::size_t kLargestManifest = 16u << 20;
constexpr int kAttempts = 16;

Status make_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // On a read-only or foreign parent that is there, mkdir says EROFS or EACCES, not EEXIST.
      const int errnum = errno;
      struct stat info {};
      if (::stat(part.c_str(), &info) != 0) return errno_error(errnum, "creating " + part);
    }
    if (slash == std::string::npos) return Ok{};
  }
}

bool is_hash(std::string_view text) {
  return text.size() >= 16 && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// An entry is made with mode 0700 and given its name by us. One that somebody else put there, while
// the cache was open to others, could still be changed behind our look at it.
bool is_ours_alone(int entry) {
  constexpr mode_t kOthersWrite = 022;
  struct stat info {};
  return ::fstat(entry, &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & kOthersWrite) == 0;
}

bool is_whole(int entry, const BundleHeader& header) {
  return std::all_of(header.files.begin(), header.files.end(), [entry](const BundleFile& file) {
    struct stat info {};
    if (::fstatat(entry, file.path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (!file.link_target.empty()) return S_ISLNK(info.st_mode);
    return S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == file.size_bytes;
  });
}

// Whoever may write to the folder above may put another one in the place of ours, unless it is
// sticky like /tmp. Members of the folder's group are trusted, as umask 002 means them to be.
Status check_parent(int directory, const std::string& path) {
  struct stat info {};
  if (::fstatat(directory, "..", &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno_error(errno, "reading the folder above " + path);
  }
  if ((info.st_mode & S_IWOTH) == 0 || (info.st_mode & S_ISVTX) != 0) return Ok{};
  return make_error(ErrorCode::kDenied, "the folder above " + path +
                                            " can be written by every user, and is not sticky");
}

}  // namespace

Result<BundleCache> BundleCache::open(const std::string& path) {
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string::npos) {
    return make_error(ErrorCode::kUsage, "the cache directory '" + path + "' is not absolute");
  }
  HORA_TRY(make_directories(path));
  // A symbolic link in the last place could have been put there by another user of /tmp.
  os::Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return errno_error(errno, "opening " + path);
  struct stat info {};
  if (::fstat(directory.get(), &info) != 0) return errno_error(errno, "reading " + path);
  if (info.st_uid != ::geteuid()) {
    return make_error(ErrorCode::kDenied, path + " belongs to another user");
  }
  HORA_TRY(check_parent(directory.get(), path));
  constexpr mode_t kOthers = 077;
  if ((info.st_mode & kOthers) != 0 && ::fchmod(directory.get(), 0700) != 0) {
    return errno_error(errno, "closing " + path + " to other users");
  }
  struct statvfs system {};
  if (::fstatvfs(directory.get(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) {
    return make_error(ErrorCode::kDenied, path + " is mounted noexec: nothing in it can be run");
  }
  return BundleCache(path, std::move(directory));
}

std::optional<std::string> BundleCache::find(const std::string& hash) const {
  if (!is_hash(hash)) return std::nullopt;
  os::Fd entry(
      ::openat(directory_.get(), hash.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entry.valid() || !is_ours_alone(entry.get())) return std::nullopt;
  const os::Fd manifest(::openat(entry.get(), kManifest, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!manifest.valid()) return std::nullopt;
  const auto text = os::read_to_end(manifest.get(), kManifest, kLargestManifest);
  if (!text) return std::nullopt;
  const auto header = decode_bundle_header(*text);
  if (!header || header->hash != hash || !is_whole(entry.get(), *header)) return std::nullopt;
  return entry_path(hash);
}

// Of agents that were killed together with their shim, or lost power.
void BundleCache::remove_abandoned() const {
  os::Fd listing(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* stream = listing.valid() ? ::fdopendir(listing.get()) : nullptr;
  if (stream == nullptr) return;
  listing.release();
  while (const dirent* item = ::readdir(stream)) {
    const std::string name(item->d_name);
    if (name.compare(0, kTemporaryPrefix.size(), kTemporaryPrefix) != 0) continue;
    os::Fd lock(
        ::openat(directory_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    // One in use is locked by whoever fills it.
    if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      (void)remove_tree(entry_path(name));
    }
  }
  ::closedir(stream);
}

Result<os::Fd> BundleCache::make_locked(const std::string& name) const {
  if (::mkdirat(directory_.get(), name.c_str(), 0700) != 0) {
    return errno_error(errno, "creating " + entry_path(name));
  }
  os::Fd made(
      ::openat(directory_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made.valid()) {
    if (errno == ENOENT) return os::Fd();
    return errno_error(errno, "opening " + entry_path(name));
  }
  // A file system without locks has nobody who removes, either.
  if (::flock(made.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return os::Fd();
  struct stat info {};
  if (::fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) return made;
  if (errno == ENOENT) return os::Fd();
  return errno_error(errno, "reading " + entry_path(name));
}

Result<std::unique_ptr<BundleCache::Arrival>> BundleCache::receive(
    BundleHeader header, std::function<Status(const std::string&)> announce) {
  if (!is_hash(header.hash)) {
    return make_error(ErrorCode::kUsage, "'" + header.hash + "' is no bundle hash");
  }
  remove_abandoned();
  std::unique_ptr<Arrival> arrival(new Arrival(*this, std::move(header)));
  arrival->announce_ = std::move(announce);
  std::string name;
  // Until it is locked, another agent may take it for an abandoned one and remove it.
  for (int attempt = 0; attempt < kAttempts && !arrival->lock_.valid(); ++attempt) {
    name = std::string(kTemporaryPrefix) + os::random_token().substr(0, 16);
    HORA_TRY(arrival->announce_(entry_path(name)));
    arrival->temporary_ = name;
    auto lock = make_locked(name);
    if (!lock) return std::move(lock).error();
    arrival->lock_ = std::move(*lock);
  }
  if (!arrival->lock_.valid()) {
    return make_error(ErrorCode::kUnavailable, "somebody removes what is made in " + path_);
  }
  os::Fd directory(::fcntl(arrival->lock_.get(), F_DUPFD_CLOEXEC, 3));
  if (!directory.valid()) return errno_error(errno, "opening " + entry_path(name));
  auto unpacker =
      FileUnpacker::create(std::move(directory), entry_path(name), arrival->header_.files);
  if (!unpacker) return std::move(unpacker).error();
  arrival->unpacker_ = std::move(*unpacker);
  return arrival;
}

BundleCache::Arrival::~Arrival() { discard(); }

void BundleCache::Arrival::discard() {
  unpacker_.reset();
  if (temporary_.empty()) return;
  lock_.reset();  // its descriptor may be the one that the removal needs
  const bool removed = remove_tree(cache_.entry_path(temporary_)).has_value();
  temporary_.clear();
  if (removed) (void)announce_("");  // else the shim tries, with descriptors of its own
}

Status BundleCache::Arrival::write_manifest() {
  const std::string path = cache_.entry_path(temporary_) + "/" + kManifest;
  os::Fd file(::openat(lock_.get(), kManifest, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error(errno, "creating " + path);
  const std::string text = encode(header_);
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t wrote = ::write(file.get(), text.data() + written, text.size() - written);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "writing " + path);
    written += static_cast<std::size_t>(wrote);
  }
  return Ok{};
}

Result<std::string> BundleCache::Arrival::finish() {
  HORA_TRY(unpacker_->finish());
  HORA_TRY(write_manifest());
  return move_into_place();
}

Result<std::string> BundleCache::Arrival::move_into_place() {
  const int directory = cache_.directory_.get();
  const std::string& name = header_.hash;
  // Twice: what stands there may be damaged, and is moved away first.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (::renameat(directory, temporary_.c_str(), directory, name.c_str()) == 0) {
      temporary_.clear();
      lock_.reset();
      (void)announce_("");
      return cache_.entry_path(name);
    }
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) {
      return errno_error(errno, "moving a bundle to " + cache_.entry_path(name));
    }
    if (auto winner = cache_.find(name)) {
      discard();
      return *winner;
    }
    const std::string aside = std::string(kTemporaryPrefix) + os::random_token().substr(0, 16);
    if (::renameat(directory, name.c_str(), directory, aside.c_str()) == 0) {
      (void)remove_tree(cache_.entry_path(aside));
    }
  }
  return make_error(ErrorCode::kUnavailable,
                    cache_.entry_path(name) + " is being replaced by others all the time");
}

}  // namespace hora::launcher
