// SPDX-License-Identifier: Apache-2.0
// The frame holds the contents of all files in the order of the header, one after the other. Sizes
// in the header separate the files. One hash over the packed bytes, which are fewer, covers them
// all.
#include "launcher/agent/file_unpacker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <cerrno>

#include <sha256.h>  // libmd

#include "launcher/agent/part_files.h"
#include "launcher/agent/safe_path.h"

namespace hora::launcher {

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
                                               ": what arrived is no zstd frame, or is "
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

}  // namespace hora::launcher
