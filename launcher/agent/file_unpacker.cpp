// SPDX-License-Identifier: Apache-2.0
// The stream is the contents of all files in the order of the header, one after the other and
// compressed as one zlib stream. Sizes in the header separate the files; a SHA-256 checks each one.
#include "launcher/agent/file_unpacker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>

#include <sha256.h>  // libmd

#include "launcher/agent/safe_path.h"

namespace hora::launcher {

// Both wrappers release what the C libraries allocate.
struct FileUnpacker::Inflater {
  z_stream stream{};
  bool ready = false;
  bool ended = false;
  std::array<char, 128 * 1024> chunk;
  Inflater() { ready = ::inflateInit(&stream) == Z_OK; }
  ~Inflater() { ::inflateEnd(&stream); }
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
    SHA256Init(&context);
    return text.data();
  }
};

FileUnpacker::FileUnpacker(os::Fd directory, std::string shown_path, std::vector<BundleFile> files)
    : directory_(std::move(directory)),
      shown_path_(std::move(shown_path)),
      files_(std::move(files)),
      inflater_(std::make_unique<Inflater>()),
      hasher_(std::make_unique<Hasher>()) {}

FileUnpacker::~FileUnpacker() = default;

Result<std::unique_ptr<FileUnpacker>> FileUnpacker::create(os::Fd directory, std::string shown_path,
                                                           std::vector<BundleFile> files) {
  // Checks all paths before the first byte is written: none may lead out of the directory.
  for (const BundleFile& file : files) {
    HORA_TRY(check_relative_path(file.path));
    if (!file.link_target.empty()) HORA_TRY(check_link_target(file.path, file.link_target));
  }
  std::unique_ptr<FileUnpacker> unpacker(
      new FileUnpacker(std::move(directory), std::move(shown_path), std::move(files)));
  if (!unpacker->inflater_->ready) return make_error(ErrorCode::kFailed, "zlib: out of memory");
  HORA_TRY(unpacker->open_next());
  return unpacker;
}

Error FileUnpacker::io_error(int errnum, const char* action, const std::string& path) const {
  return errno_error(errnum, std::string(action) + " " + shown_path_ + "/" + path);
}

// Files come in order of their paths, so most share the directory of the one before.
Status FileUnpacker::make_parents(const std::string& path) {
  const std::size_t last = path.rfind('/');
  const std::string parent = last == std::string::npos ? "" : path.substr(0, last);
  if (parent == last_parent_) return Ok{};
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdirat(directory_.get(), part.c_str(), 0755) != 0 && errno != EEXIST) {
      return io_error(errno, "creating", part);
    }
  }
  last_parent_ = parent;
  return Ok{};
}

// Opens the next file that has bytes to come. Empty files are created on the way; links follow at
// the end.
Status FileUnpacker::open_next() {
  while (!file_.valid() && next_ < files_.size()) {
    const BundleFile& file = files_[next_++];
    if (!file.link_target.empty()) continue;
    HORA_TRY(make_parents(file.path));
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
  if (hasher_->hex() != file.sha256) {
    return make_error(ErrorCode::kUsage,
                      shown_path_ + "/" + file.path + " arrived damaged: its SHA-256 is another");
  }
  constexpr int kPermissions = 0777;
  if (::fchmod(file_.get(), static_cast<mode_t>(file.mode & kPermissions)) != 0) {
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
    hasher_->add(part);
    left_ -= part.size();
    bytes.remove_prefix(part.size());
    if (left_ == 0) {
      HORA_TRY(close_file());
      HORA_TRY(open_next());
    }
  }
  return Ok{};
}

Status FileUnpacker::write(std::string_view compressed) {
  z_stream& stream = inflater_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  while (stream.avail_in > 0) {
    // Trailing data would go unchecked, so it is an error.
    if (inflater_->ended) {
      return make_error(ErrorCode::kUsage, shown_path_ + ": data behind the end of the stream");
    }
    stream.next_out = reinterpret_cast<Bytef*>(inflater_->chunk.data());
    stream.avail_out = static_cast<uInt>(inflater_->chunk.size());
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    const std::size_t made = inflater_->chunk.size() - stream.avail_out;
    if (made > 0) HORA_TRY(take({inflater_->chunk.data(), made}));
    if (result == Z_STREAM_END) {
      inflater_->ended = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return make_error(ErrorCode::kUsage, shown_path_ + ": what arrived is no zlib stream");
    } else if (result == Z_BUF_ERROR && made == 0) {
      break;  // needs more input
    }
  }
  return Ok{};
}

Status FileUnpacker::finish() {
  // The end of the stream may arrive in a later call than the last byte of output, so all three
  // must hold.
  if (!inflater_->ended || file_.valid() || next_ < files_.size()) {
    return make_error(ErrorCode::kUsage, shown_path_ + ": the transfer ended early");
  }
  // Links come last, so that no file was written through one of them.
  for (const BundleFile& file : files_) {
    if (file.link_target.empty()) continue;
    HORA_TRY(make_parents(file.path));
    if (::symlinkat(file.link_target.c_str(), directory_.get(), file.path.c_str()) != 0) {
      return io_error(errno, "creating", file.path);
    }
  }
  return Ok{};
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

}  // namespace hora::launcher
