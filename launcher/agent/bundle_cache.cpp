// SPDX-License-Identifier: Apache-2.0
// An entry is a directory named after the bundle's hash. It comes into being under a temporary
// name, gets its manifest last and is then renamed, so a reader sees a whole entry or none.
#include "launcher/agent/bundle_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/remove_tree.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// The manifest lists the files that must be there. The leading dot keeps its name apart from
// theirs.
constexpr char kManifest[] = ".hora-manifest";
constexpr std::size_t kLargestManifest = 16u << 20;

Status make_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // If a parent exists and is read-only or foreign, mkdir reports EROFS or EACCES instead of
      // EEXIST.
      const int errnum = errno;
      struct stat info {};
      if (::stat(part.c_str(), &info) != 0) return errno_error(errnum, "creating " + part);
    }
    if (slash == std::string::npos) return Ok{};
  }
}

// We create an entry with mode 0700 and give it its name. An entry that another user put there
// while the cache was open to others could still change after we have looked at it.
bool is_ours_alone(int entry) {
  constexpr mode_t kOthersWrite = 022;
  struct stat info {};
  return ::fstat(entry, &info) == 0 && info.st_uid == ::geteuid() &&
         (info.st_mode & kOthersWrite) == 0;
}

// Checks presence, type and size, not contents: the hash was checked on arrival, and reading a
// gigabyte at each start would cost more than it protects from.
bool is_whole(int entry, const BundleHeader& header) {
  return std::all_of(header.files.begin(), header.files.end(), [entry](const BundleFile& file) {
    struct stat info {};
    if (::fstatat(entry, file.path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (!file.link_target.empty()) return S_ISLNK(info.st_mode);
    return S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == file.size_bytes;
  });
}

// Everything is opened relative to descriptors with O_NOFOLLOW, so no symbolic link can redirect
// it.
std::optional<std::string> find_bundle(const CacheDirectory& directory, const std::string& hash) {
  if (!is_hash(hash)) return std::nullopt;
  os::Fd entry(
      ::openat(directory.fd(), hash.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entry.valid() || !is_ours_alone(entry.get())) return std::nullopt;
  const os::Fd manifest(::openat(entry.get(), kManifest, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!manifest.valid()) return std::nullopt;
  const auto text = os::read_to_end(manifest.get(), kManifest, kLargestManifest);
  if (!text) return std::nullopt;
  const auto header = decode_bundle_header(*text);
  // The manifest's own hash must match the name: a copied directory is not the entry it claims to
  // be.
  if (!header || header->hash != hash || !is_whole(entry.get(), *header)) return std::nullopt;
  return directory.entry_path(hash);
}

}  // namespace

Result<BundleCache> BundleCache::create(const std::string& path) {
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string::npos) {
    return make_error(ErrorCode::kUsage, "the cache directory '" + path + "' is not absolute");
  }
  HORA_TRY(make_directories(path));
  return open(path);
}

Result<BundleCache> BundleCache::open(const std::string& path) {
  auto directory = CacheDirectory::open(path);
  if (!directory) return std::move(directory).error();
  struct statvfs system {};
  // Ask before the transfer: a noexec mount would only fail when the first rank starts.
  if (::fstatvfs(directory->fd(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) {
    return make_error(ErrorCode::kDenied, path + " is mounted noexec: nothing in it can be run");
  }
  return BundleCache(std::move(*directory));
}

std::optional<std::string> BundleCache::find(const std::string& hash) const {
  return find_bundle(directory_, hash);
}

Result<std::unique_ptr<BundleCache::Arrival>> BundleCache::receive(
    BundleHeader header, std::function<Status(const std::string&)> announce) const {
  if (!is_hash(header.hash)) {
    return make_error(ErrorCode::kUsage, "'" + header.hash + "' is no bundle hash");
  }
  // Abandoned transfers of killed agents go first, since they may be what fills the disk.
  directory_.remove_debris();
  auto held = directory_.make_held(kIncomingPrefix, "", announce);
  if (!held) return std::move(held).error();
  std::unique_ptr<Arrival> arrival(new Arrival(directory_, std::move(header)));
  arrival->announce_ = std::move(announce);
  arrival->temporary_ = std::move(held->name);
  arrival->lock_ = std::move(held->lock);
  const std::string path = directory_.entry_path(arrival->temporary_);
  // The unpacker needs a descriptor of its own: it closes its one, while the lock must stay.
  os::Fd unpacked(::fcntl(arrival->lock_.get(), F_DUPFD_CLOEXEC, 3));
  if (!unpacked.valid()) return errno_error(errno, "opening " + path);
  auto unpacker = FileUnpacker::create(std::move(unpacked), path, arrival->header_.files);
  if (!unpacker) return std::move(unpacker).error();
  arrival->unpacker_ = std::move(*unpacker);
  return arrival;
}

BundleCache::Arrival::~Arrival() { discard(); }

void BundleCache::Arrival::discard() {
  unpacker_.reset();
  if (temporary_.empty()) return;
  // Some file systems refuse to remove a directory that is still open.
  lock_.reset();
  const bool removed = remove_tree(directory_.entry_path(temporary_)).has_value();
  temporary_.clear();
  // If the removal fails, the announcement stays, and the shim tries again with its own
  // descriptors.
  if (removed) (void)announce_("");
}

Status BundleCache::Arrival::write_manifest() {
  const std::string path = directory_.entry_path(temporary_) + "/" + kManifest;
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

// Several agents may deliver the same bundle to a shared directory: the first rename wins, and the
// others use the winner's entry.
Result<std::string> BundleCache::Arrival::move_into_place() {
  const int directory = directory_.fd();
  const std::string& name = header_.hash;
  // A damaged entry under the name is moved away first; the rename then needs another attempt, and
  // another agent may come in between.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (::renameat(directory, temporary_.c_str(), directory, name.c_str()) == 0) {
      temporary_.clear();
      lock_.reset();
      (void)announce_("");
      return directory_.entry_path(name);
    }
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) {
      return errno_error(errno, "moving a bundle to " + directory_.entry_path(name));
    }
    if (auto winner = find_bundle(directory_, name)) {
      discard();
      return *winner;
    }
    const std::string aside = directory_.temporary_name(kIncomingPrefix);
    if (::renameat(directory, name.c_str(), directory, aside.c_str()) == 0) {
      (void)remove_tree(directory_.entry_path(aside));
    }
  }
  return make_error(ErrorCode::kUnavailable,
                    directory_.entry_path(name) + " is being replaced by others all the time");
}

}  // namespace hora::launcher
