// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/file_unpacker.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include <sha256.h>  // libmd

#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Everything is opened relative to descriptors with O_NOFOLLOW, so no symbolic link can redirect
// it.

namespace {

Error io_error(int errnum, const char* action, const std::string& folder, const std::string& path) {
  return errno_error(errnum, std::string(action) + " " + folder + "/" + path);
}

Status write_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t wrote = ::write(fd, bytes, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno_error(errno, "writing");
    bytes += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
  return Ok{};
}

Status copy_bytes(int from, int to) {
  if (::ioctl(to, FICLONE, from) == 0) return Ok{};
  std::array<char, 64 * 1024> chunk;
  while (true) {
    const ssize_t got = ::read(from, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading");
    if (got == 0) return Ok{};
    HORA_TRY(write_all(to, chunk.data(), static_cast<std::size_t>(got)));
  }
}

// O_EXCL: nothing that another part has is ever written over.
Status copy_file(int from, int to, const std::string& shown_path, const BundleFile& file) {
  const os::Fd source(::openat(from, file.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!source.valid()) return errno_error(errno, "opening another bundle's " + file.path);
  os::Fd copy(
      ::openat(to, file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!copy.valid()) return io_error(errno, "creating", shown_path, file.path);
  if (const Status copied = copy_bytes(source.get(), copy.get()); !copied) {
    return Error(copied.error()).with_context(shown_path + "/" + file.path);
  }
  // Some file systems report a full disk only at close().
  if (::fchmod(copy.get(), permissions_of(file)) != 0 ||
      (::close(copy.release()) != 0 && errno != EINTR)) {
    return io_error(errno, "writing", shown_path, file.path);
  }
  return Ok{};
}

// EPERM, ENOTSUP and the like: a file system without hard links. EXDEV: another one. EMLINK: too
// many.
bool allows_no_link(int errnum) {
  return errnum == EXDEV || errnum == EPERM || errnum == EMLINK || errnum == ENOTSUP ||
         errnum == ENOSYS;
}

enum class Means { kLinkOrCopy, kCopy };

// A link costs one system call and no space, so it is tried first. A symbolic link is created
// again, as hard links to them are not allowed everywhere.
Status adopt_file(int from, int to, const std::string& shown_path, const BundleFile& file,
                  Means means) {
  if (is_folder(file)) return make_folder(to, shown_path, file);
  if (!file.link_target.empty()) {
    if (::symlinkat(file.link_target.c_str(), to, file.path.c_str()) == 0) return Ok{};
  } else {
    if (means == Means::kCopy) return copy_file(from, to, shown_path, file);
    if (::linkat(from, file.path.c_str(), to, file.path.c_str(), 0) == 0) return Ok{};
    if (allows_no_link(errno)) return copy_file(from, to, shown_path, file);
  }
  return io_error(errno, "creating", shown_path, file.path);
}

Status put_files(int from, int to, const std::string& shown_path,
                 const std::vector<BundleFile>& files, Means means) {
  HORA_TRY(check_paths(files));
  std::string last_parent;
  // Links come last, so that no file is written through one of them.
  for (const bool links : {false, true}) {
    for (const BundleFile& file : files) {
      if (file.link_target.empty() == links) continue;
      HORA_TRY(make_parents(to, shown_path, file.path, last_parent));
      HORA_TRY(adopt_file(from, to, shown_path, file, means));
    }
  }
  return Ok{};
}

}  // namespace

Status check_paths(const std::vector<BundleFile>& files) {
  for (const BundleFile& file : files) {
    HORA_TRY(check_relative_path(file.path));
    if (!file.link_target.empty()) HORA_TRY(check_link_target(file.path, file.link_target));
  }
  return Ok{};
}

Status make_parents(int directory, const std::string& shown_path, const std::string& path,
                    std::string& last_parent) {
  const std::size_t last = path.rfind('/');
  const std::string parent = last == std::string::npos ? "" : path.substr(0, last);
  if (parent == last_parent) return Ok{};
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdirat(directory, part.c_str(), 0755) != 0 && errno != EEXIST) {
      return io_error(errno, "creating", shown_path, part);
    }
  }
  last_parent = parent;
  return Ok{};
}

mode_t permissions_of(const BundleFile& file) {
  constexpr int kPermissions = 0777;
  return static_cast<mode_t>(file.mode & kPermissions);
}

bool is_folder(const BundleFile& file) {
  return (static_cast<mode_t>(file.mode) & S_IFMT) == S_IFDIR;
}

Status make_folder(int directory, const std::string& shown_path, const BundleFile& file) {
  if (::mkdirat(directory, file.path.c_str(), 0755) == 0 || errno == EEXIST) return Ok{};
  return io_error(errno, "creating", shown_path, file.path);
}

bool are_whole(int directory, const std::vector<BundleFile>& files) {
  return std::all_of(files.begin(), files.end(), [directory](const BundleFile& file) {
    struct stat info {};
    if (::fstatat(directory, file.path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (!file.link_target.empty()) return S_ISLNK(info.st_mode);
    if (is_folder(file)) return S_ISDIR(info.st_mode);
    return S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == file.size_bytes;
  });
}

Status adopt_files(int from, int to, const std::string& shown_path,
                   const std::vector<BundleFile>& files) {
  return put_files(from, to, shown_path, files, Means::kLinkOrCopy);
}

Status copy_files(int from, int to, const std::string& shown_path,
                  const std::vector<BundleFile>& files) {
  return put_files(from, to, shown_path, files, Means::kCopy);
}

// The frame holds the contents of all files in the order of the header, one after the other. Sizes
// in the header separate the files. One hash over the packed bytes, which are fewer, covers them
// all.

namespace {

// 8 MiB: what a decoder may keep of its output. Launchers use less.
constexpr int kLargestWindowLog = 23;

}  // namespace

// Both wrappers release what the C libraries allocate.
struct FileUnpacker::Decoder {
  ZSTD_DCtx* context = ::ZSTD_createDCtx();
  bool ended = false;
  std::array<char, 128 * 1024> chunk;
  Decoder() {
    if (context != nullptr) {
      ::ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, kLargestWindowLog);
    }
  }
  ~Decoder() { ::ZSTD_freeDCtx(context); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

struct FileUnpacker::Hasher {
  SHA2_CTX context;
  Hasher() { SHA256Init(&context); }
  void add(std::string_view bytes) {
    SHA256Update(&context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  std::string hex() {
    std::array<char, SHA256_DIGEST_STRING_LENGTH> text;
    SHA256End(&context, text.data());
    return text.data();
  }
};

FileUnpacker::FileUnpacker(os::Fd directory, std::string shown_path, std::vector<BundleFile> files,
                           std::string packed_sha256)
    : directory_(std::move(directory)),
      shown_path_(std::move(shown_path)),
      files_(std::move(files)),
      packed_sha256_(std::move(packed_sha256)),
      decoder_(std::make_unique<Decoder>()),
      hasher_(std::make_unique<Hasher>()) {}

FileUnpacker::~FileUnpacker() = default;

Result<std::unique_ptr<FileUnpacker>> FileUnpacker::create(os::Fd directory, std::string shown_path,
                                                           std::vector<BundleFile> files,
                                                           std::string packed_sha256) {
  // Checks all paths before the first byte is written: none may lead out of the directory.
  HORA_TRY(check_paths(files));
  std::unique_ptr<FileUnpacker> unpacker(new FileUnpacker(
      std::move(directory), std::move(shown_path), std::move(files), std::move(packed_sha256)));
  if (unpacker->decoder_->context == nullptr) {
    return make_error(ErrorCode::kFailed, "zstd: out of memory");
  }
  HORA_TRY(unpacker->open_next());
  return unpacker;
}

Error FileUnpacker::io_error(int errnum, const char* action, const std::string& path) const {
  return errno_error(errnum, std::string(action) + " " + shown_path_ + "/" + path);
}

// Opens the next file that has bytes to come. Empty files are created on the way; links follow at
// the end.
Status FileUnpacker::open_next() {
  while (!file_.valid() && next_ < files_.size()) {
    const BundleFile& file = files_[next_++];
    if (!file.link_target.empty()) continue;
    HORA_TRY(make_parents(directory_.get(), shown_path_, file.path, last_parent_));
    if (is_folder(file)) {
      HORA_TRY(make_folder(directory_.get(), shown_path_, file));
      continue;
    }
    // O_EXCL and O_NOFOLLOW: nothing that is already there, a link above all, is ever written
    // through.
    file_ = os::Fd(::openat(directory_.get(), file.path.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_.valid()) return io_error(errno, "creating", file.path);
    left_ = file.size_bytes;
    if (left_ == 0) HORA_TRY(close_file());
  }
  return Ok{};
}

Status FileUnpacker::close_file() {
  const BundleFile& file = files_[next_ - 1];
  if (::fchmod(file_.get(), permissions_of(file)) != 0) {
    return io_error(errno, "setting the mode of", file.path);
  }
  // Some file systems report a full disk only at close().
  if (::close(file_.release()) != 0 && errno != EINTR) {
    return io_error(errno, "writing", file.path);
  }
  return Ok{};
}

// One piece of output may end one file and begin the next.
Status FileUnpacker::take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!file_.valid()) {
      return make_error(ErrorCode::kUsage, shown_path_ + ": more bytes came than were announced");
    }
    const std::string_view part =
        bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size())));
    std::size_t written = 0;
    while (written < part.size()) {
      const ssize_t wrote = ::write(file_.get(), part.data() + written, part.size() - written);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return io_error(errno, "writing", files_[next_ - 1].path);
      written += static_cast<std::size_t>(wrote);
    }
    left_ -= part.size();
    bytes.remove_prefix(part.size());
    if (left_ == 0) {
      HORA_TRY(close_file());
      HORA_TRY(open_next());
    }
  }
  return Ok{};
}

Status FileUnpacker::write(std::string_view packed) {
  hasher_->add(packed);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  bool may_have_more = true;  // the decoder, that is; it keeps what did not fit into the chunk
  while (in.pos < in.size || may_have_more) {
    // Trailing data would go unchecked, so it is an error.
    if (decoder_->ended) {
      if (in.pos == in.size) break;
      return make_error(ErrorCode::kUsage, shown_path_ + ": data behind the end of the stream");
    }
    ZSTD_outBuffer out{decoder_->chunk.data(), decoder_->chunk.size(), 0};
    const std::size_t left = ::ZSTD_decompressStream(decoder_->context, &out, &in);
    if (::ZSTD_isError(left) != 0) {
      return make_error(ErrorCode::kUsage, shown_path_ +
                                               ": not a valid zstd frame, or one that is "
                                               "damaged (" +
                                               ::ZSTD_getErrorName(left) + ")");
    }
    HORA_TRY(take({decoder_->chunk.data(), out.pos}));
    decoder_->ended = left == 0;
    may_have_more = out.pos == out.size;
  }
  return Ok{};
}

Status FileUnpacker::finish() {
  // The end of the stream may arrive in a later call than the last byte of output, so all three
  // must hold.
  if (!decoder_->ended || file_.valid() || next_ < files_.size()) {
    return make_error(ErrorCode::kUsage, shown_path_ + ": the transfer ended early");
  }
  if (hasher_->hex() != packed_sha256_) {
    return make_error(ErrorCode::kUsage,
                      shown_path_ + ": what arrived is damaged: its SHA-256 is another");
  }
  // Links come last, so that no file was written through one of them.
  for (const BundleFile& file : files_) {
    if (file.link_target.empty()) continue;
    HORA_TRY(make_parents(directory_.get(), shown_path_, file.path, last_parent_));
    if (::symlinkat(file.link_target.c_str(), directory_.get(), file.path.c_str()) != 0) {
      return io_error(errno, "creating", file.path);
    }
  }
  return Ok{};
}

std::string sha256_of(std::string_view bytes) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::array<char, SHA256_DIGEST_STRING_LENGTH> text;
  SHA256End(&context, text.data());
  return text.data();
}

Result<std::string> sha256_of_file(const std::string& path) {
  os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + path);
  SHA2_CTX context;
  SHA256Init(&context);
  std::vector<std::uint8_t> chunk(256 * 1024);
  while (true) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "reading " + path);
    if (got == 0) break;
    SHA256Update(&context, chunk.data(), static_cast<std::size_t>(got));
  }
  std::array<char, SHA256_DIGEST_STRING_LENGTH> text;
  SHA256End(&context, text.data());
  return std::string(text.data());
}

// Paths in a bundle come from the network. None of them, and no link, may lead out of the directory
// that the bundle is unpacked into.

namespace {

Error refused(std::string_view path, const char* why) {
  return make_error(ErrorCode::kUsage, "the path '" + std::string(path) + "' " + why);
}

}  // namespace

Status check_relative_path(std::string_view path) {
  constexpr std::size_t kLongest = 4000;
  if (path.empty()) return refused(path, "is empty");
  if (path.size() > kLongest) return refused(path.substr(0, 80), "... is too long");
  if (path.find('\0') != std::string_view::npos) return refused("", "holds a NUL byte");
  if (path.front() == '/') return refused(path, "is absolute");
  std::string_view rest = path;
  while (true) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    // An empty part or "." would give one file two names.
    if (part.empty() || part == ".") return refused(path, "has an empty part");
    if (part == "..") return refused(path, "leads outside");
    if (slash == std::string_view::npos) return Ok{};
    rest.remove_prefix(slash + 1);
  }
}

Status check_link_target(std::string_view path, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.find('\0') != std::string_view::npos) {
    return refused(path, "links to an absolute or empty place");
  }
  // The depth of the directory where the link is, below the root.
  int depth = 0;
  for (const char c : path) depth += c == '/';
  while (!target.empty()) {
    const std::size_t slash = target.find('/');
    const std::string_view part = target.substr(0, slash);
    // The depth is checked at each step, so "../../x/.." cannot leave and come back.
    if (part == "..") {
      if (--depth < 0) return refused(path, "links outside");
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    target.remove_prefix(slash == std::string_view::npos ? target.size() : slash + 1);
  }
  return Ok{};
}

}  // namespace hora::launcher
