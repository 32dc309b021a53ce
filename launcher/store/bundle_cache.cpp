// SPDX-License-Identifier: Apache-2.0
// An entry is a directory named after its parts. It comes into being under a temporary name, gets
// its manifest last and is then renamed, so a reader sees a whole entry or none.
#include "launcher/store/bundle_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/protocol/delivery.h"
#include "launcher/store/directories.h"
#include "launcher/store/file_unpacker.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// The manifest lists the parts and files that must be there. The leading dot keeps its name apart
// from theirs.
constexpr char kManifest[] = ".hora-manifest";
constexpr std::size_t kLargestManifest = 64u << 20;

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

std::string name_of(const BundleManifest& manifest) {
  std::vector<std::string> hashes;
  for (const BundlePart& part : manifest.parts) hashes.push_back(part.hash);
  return bundle_name(std::move(hashes));
}

// An entry that is ours and says what is in it. Everything is opened relative to descriptors with
// O_NOFOLLOW, so no symbolic link can redirect it.
struct Entry {
  os::Fd directory;
  BundleManifest manifest;
};

// The entry's own list; its name does not count.
std::optional<Entry> open_entry_at(int parent, const std::string& path) {
  Entry entry;
  entry.directory =
      os::Fd(::openat(parent, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entry.directory.valid() || !is_ours_alone(entry.directory.get())) return std::nullopt;
  const os::Fd manifest(
      ::openat(entry.directory.get(), kManifest, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!manifest.valid()) return std::nullopt;
  const auto text = os::read_to_end(manifest.get(), kManifest, kLargestManifest);
  if (!text) return std::nullopt;
  auto listed = decode<BundleManifest>(*text);
  if (!listed) return std::nullopt;
  entry.manifest = std::move(*listed);
  return entry;
}

// A copied directory is not the entry that its name claims.
std::optional<Entry> open_entry(const CacheDirectory& directory, const std::string& name) {
  if (!is_hash(name)) return std::nullopt;
  auto entry = open_entry_at(directory.fd(), name);
  if (!entry || name_of(entry->manifest) != name) return std::nullopt;
  return entry;
}

std::optional<std::string> find_bundle(const CacheDirectory& directory, const std::string& name) {
  const auto entry = open_entry(directory, name);
  if (!entry) return std::nullopt;
  const auto& parts = entry->manifest.parts;
  const bool whole = std::all_of(parts.begin(), parts.end(), [&entry](const BundlePart& part) {
    return are_whole(entry->directory.get(), part.files);
  });
  if (!whole) return std::nullopt;
  return directory.entry_path(name);
}

}  // namespace

std::vector<BundlePart> parts_of_entry(const CacheDirectory& directory, const std::string& name) {
  auto entry = open_entry(directory, name);
  return entry ? std::move(entry->manifest.parts) : std::vector<BundlePart>();
}

Status copy_bundle(const std::string& entry, const std::string& directory) {
  const auto source = open_entry_at(AT_FDCWD, entry);
  if (!source) return make_error(ErrorCode::kNotFound, entry + " was removed or damaged meanwhile");
  const os::Fd to(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!to.valid()) return errno_error(errno, "opening " + directory);
  for (const BundlePart& part : source->manifest.parts) {
    HORA_TRY(copy_files(source->directory.get(), to.get(), directory, part.files));
  }
  return Ok{};
}

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

std::optional<std::string> BundleCache::find(const std::string& name) const {
  return find_bundle(directory_, name);
}

// Reads every manifest: only called when the wanted entry is not there, and a host has a few of
// them.
std::map<std::string, BundleCache::Source> BundleCache::parts() const {
  std::map<std::string, Source> found;
  const auto names = directory_.names();
  if (!names) return found;
  for (const std::string& name : *names) {
    auto entry = open_entry(directory_, name);
    if (!entry) continue;
    for (BundlePart& part : entry->manifest.parts) {
      if (found.count(part.hash) > 0 || !are_whole(entry->directory.get(), part.files)) continue;
      std::string hash = part.hash;
      found.emplace(std::move(hash), Source{directory_.entry_path(name), std::move(part)});
    }
  }
  return found;
}

Result<std::unique_ptr<BundleCache::Arrival>> BundleCache::begin(
    std::function<Status(const std::string&)> announce) const {
  // Abandoned transfers of killed agents go first, since they may be what fills the disk.
  directory_.remove_debris();
  auto held = directory_.make_held(kIncomingPrefix, "", announce);
  if (!held) return std::move(held).error();
  std::unique_ptr<Arrival> arrival(new Arrival(directory_));
  arrival->announce_ = std::move(announce);
  arrival->temporary_ = std::move(held->name);
  arrival->lock_ = std::move(held->lock);
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

bool BundleCache::Arrival::has(const std::string& part_hash) const {
  return std::any_of(parts().begin(), parts().end(),
                     [&part_hash](const BundlePart& part) { return part.hash == part_hash; });
}

// The other entry may be cleaned away meanwhile. Then a file is missing, and the caller asks for
// all.
Status BundleCache::Arrival::adopt(const Source& source) {
  const os::Fd entry(::open(source.entry.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!entry.valid()) return errno_error(errno, "opening " + source.entry);
  HORA_TRY(adopt_files(entry.get(), lock_.get(), path(), source.part.files));
  manifest_.parts.push_back(source.part);
  return Ok{};
}

Status BundleCache::Arrival::adopt(const Arrival& other, const BundlePart& part) {
  HORA_TRY(adopt_files(other.lock_.get(), lock_.get(), path(), part.files));
  manifest_.parts.push_back(part);
  return Ok{};
}

Status BundleCache::Arrival::begin_part(BundlePart part) {
  if (!is_hash(part.hash)) {
    return make_error(ErrorCode::kUsage, "'" + part.hash + "' is not a hash of a part");
  }
  // The unpacker needs a descriptor of its own: it closes its one, while the lock must stay.
  os::Fd unpacked(::fcntl(lock_.get(), F_DUPFD_CLOEXEC, 3));
  if (!unpacked.valid()) return errno_error(errno, "opening " + path());
  auto unpacker = FileUnpacker::create(std::move(unpacked), path(), part.files, part.packed_sha256);
  if (!unpacker) return std::move(unpacker).error();
  unpacker_ = std::move(*unpacker);
  arriving_ = std::move(part);
  return Ok{};
}

// Only now does the part count: what is not whole is never linked or copied.
Status BundleCache::Arrival::end_part() {
  HORA_TRY(unpacker_->finish());
  unpacker_.reset();
  manifest_.parts.push_back(std::move(arriving_));
  return Ok{};
}

Status BundleCache::Arrival::write_manifest() {
  const std::string shown = path() + "/" + kManifest;
  os::Fd file(::openat(lock_.get(), kManifest, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error(errno, "creating " + shown);
  const std::string text = encode(manifest_);
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t wrote = ::write(file.get(), text.data() + written, text.size() - written);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "writing " + shown);
    written += static_cast<std::size_t>(wrote);
  }
  // Some file systems report a full disk only at close().
  if (const int refused = file.close(); refused != 0)
    return errno_error(refused, "writing " + shown);
  return Ok{};
}

Result<std::string> BundleCache::Arrival::finish() {
  HORA_TRY(write_manifest());
  return move_into_place();
}

// Several agents may deliver the same bundle to a shared directory: the first rename wins, and the
// others use the winner's entry.
Result<std::string> BundleCache::Arrival::move_into_place() {
  const int directory = directory_.fd();
  const std::string name = name_of(manifest_);
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
